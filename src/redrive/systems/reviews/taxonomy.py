"""The failure table of reviews (R-02): which error class belongs to which category, and whether trying again can help.

One entry for each row of the document's table. Stages raise the answers that `retryable` and `terminal` make, so a
class that is not in the table cannot be said. The categories in SQL (`sql/verbs/category.sql`) are tested against it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from redrive import Backoff, Policy, Retryable, Terminal

ATTEMPTS: Final = 5
SENT_WITHOUT_RECORD: Final = "SENT_WITHOUT_PROVIDER_RECORD"
RETRY_AFTER_SECONDS_MAX: Final = 300.0
BACKOFF: Final = Backoff(initial_seconds=1, multiplier=2, max_seconds=60, jitter="full")
POLICY: Final = Policy(attempts=ATTEMPTS, backoff=BACKOFF, retry_after_max_seconds=RETRY_AFTER_SECONDS_MAX)
"""R-01 and R-03: five attempts of each stage, and the delays between them."""


@dataclass(frozen=True, slots=True)
class Category:
    """name: the label in the metrics. classes: the error classes that stages of ours report."""

    name: str
    is_retryable: bool
    classes: frozenset[str]


def _category(name: str, *classes: str, is_retryable: bool) -> Category:
    return Category(name, is_retryable, frozenset(classes))


CATEGORIES: Final = (
    _category(
        "network",
        *(
            "NETWORK_TIMEOUT",
            "CONNECTION_LOST",
            "CONNECTION_REFUSED",
            "CONNECT_TIMEOUT",
            "NAME_NOT_RESOLVED",
            "TIMEOUT",
        ),
        *("GATEWAY_LOST", "HTTP_408", "HTTP_502", "HTTP_503", "HTTP_504", "DATABASE_UNREACHABLE", "REQUEST_FAILED"),
        *(
            "SMTP_SERVER_DOWN",
            "SMTP_CONNECTION_LOST",
            "SMTP_REPLY_TIMEOUT",
            "SMTP_REPLY_INVALID",
            "SMTP_REPLY_LOST",
            "SMTP_STARTTLS_MISSING",
            "TLS_REFUSED",
            *("SMTP_421", "SMTP_451", "SMTP_454", "SMTP_455"),
        ),
        is_retryable=True,
    ),
    _category("rate_limit", "RATE_LIMITED", "HTTP_429", "SMTP_450", "SMTP_452", is_retryable=True),
    _category("upstream", "UPSTREAM_INTERNAL", "HTTP_500", "ANSWER_INVALID", is_retryable=True),
    _category("conflict", "CONFLICT", "HTTP_409", SENT_WITHOUT_RECORD, is_retryable=True),
    _category(
        "validation",
        *(
            "SCHEMA_INVALID",
            "PAYLOAD_INVALID",
            "UNDECODABLE",
            "DIFF_EMPTY",
            "DIFF_TOO_LARGE",
            "RECIPIENT_INVALID",
            "HTTP_400",
            "HTTP_422",
        ),
        *("SMTP_HEADER_INVALID", "SMTP_ADDRESS_INVALID", "SMTP_RECIPIENTS", "SMTP_TOO_LARGE", "SMTP_UTF8_UNSUPPORTED"),
        *("SMTP_500", "SMTP_501", "SMTP_502", "SMTP_503", "SMTP_504", "SMTP_555"),
        is_retryable=False,
    ),
    _category(
        "auth",
        *("AUTH_DENIED", "HTTP_401", "HTTP_403", "SMTP_LOGIN_REFUSED", "SMTP_SENDER_REFUSED", "EGRESS_REFUSED"),
        *("SMTP_530", "SMTP_535"),
        is_retryable=False,
    ),
    _category(
        "not_found",
        *("REPOSITORY_UNKNOWN", "COMMIT_UNKNOWN", "NOT_FOUND", "CHANNEL_GONE", "HTTP_404", "HTTP_410", "MESSAGE_GONE"),
        "SMTP_RECIPIENT_REFUSED",
        is_retryable=False,
    ),
    # What a server says of the mail as a whole, such as that it is spam.
    _category(
        "policy",
        *("CONTENT_REJECTED", "SMTP_550", "SMTP_551", "SMTP_552", "SMTP_553", "SMTP_554"),
        is_retryable=False,
    ),
    _category(
        "defect",
        *("UNCLASSIFIED", "RETURN_INVALID", "CRASHED", "CONFIG_INVALID", "STAGE_UNKNOWN", "ADVANCE_UNDECLARED"),
        is_retryable=False,
    ),
)
OTHER: Final = "other"
BY_CLASS: Final[Mapping[str, Category]] = {name: one for one in CATEGORIES for name in one.classes}


def category_of(error_class: str) -> str:
    found = BY_CLASS.get(error_class)
    return found.name if found else OTHER


def retryable(error_class: str, text: str = "", *, retry_after: float | str | None = None) -> Retryable:
    """Trying again can help."""
    assert BY_CLASS[error_class].is_retryable, error_class
    return Retryable(error_class, text, retry_after=retry_after)


def terminal(error_class: str, text: str = "") -> Terminal:
    """It must be corrected before it is tried again. A configuration that cannot work is a defect: it is paged."""
    category = BY_CLASS[error_class]
    assert not category.is_retryable, error_class
    return Terminal(error_class, text, bug=category.name == "defect")


def of_status(status: int, retry_after: str | None, text: str = "") -> Retryable | Terminal:
    """An HTTP status, where the reply says no more: of a service that may be asked twice."""
    match status:
        case 429:
            return retryable("RATE_LIMITED", text, retry_after=retry_after)
        case 408 | 502 | 503 | 504:
            return retryable("GATEWAY_LOST", text, retry_after=retry_after)
        case 409:
            return retryable("CONFLICT", text, retry_after=retry_after)
        case 401 | 403:
            return terminal("AUTH_DENIED", text)
        case 404 | 410:
            return terminal("NOT_FOUND", text)
    if status >= 500:
        return retryable("UPSTREAM_INTERNAL", text, retry_after=retry_after)
    return terminal("SCHEMA_INVALID", text)
