"""What is submitted for review, checked field by field: a request that cannot be right is refused at the call.

`checked` returns the request with its recipients in one order, their domains in lower case and without repeats: the
same request has the same hash, and a mailbox is notified once however it is written. Whether the repository and the
commits exist is known where the repository is: by the stage `fetch`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Final

from redrive.errors import UsageError
from redrive.kit.statements import canonical_json, shown
from redrive.systems.reviews.names import TENANT

PROVIDER: Final = "email"
RECIPIENTS_MAX: Final = 100
VERSION_MAX: Final = 2_147_483_647
ADDRESS_MAX: Final = 320
# One mailbox, as RFC 5321 has it but for quoted names: what stands here becomes a header of a mail.
_ADDRESS: Final = re.compile(
    r"[^\s@<>()\[\]\\,;:\"\x00-\x1f\x7f]{1,64}@(?:[^\s@<>()\[\]\\,;:\"\x00-\x1f\x7f.]+\.)*[^\s@<>()\[\]\\,;:\".\x00-\x1f\x7f]+"
)
_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,62}")
# What git takes for a commit; it cannot begin like an option.
_COMMIT: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./^~-]{0,199}")


class ReviewRefused(UsageError):
    """A request that cannot be accepted. Nothing was changed, and the transaction is still usable.

    reason: stable, upper case. field, value: what it is about. job_id: the job that is in the way, where one is.
    """

    code = "REVIEW_REFUSED"

    def __init__(self, reason: str, field: str, value: object, rule: str, *, job_id: object = None) -> None:
        super().__init__(f"{reason}: {field} is {shown(value)}; {rule}")
        self.reason, self.field, self.value, self.rule, self.job_id = reason, field, value, rule, job_id


@dataclass(frozen=True, slots=True)
class Recipient:
    """address: a mailbox, 3 to 320 characters. provider: by which it is notified. required: the job succeeds only when
    this recipient has been notified.
    """

    address: str
    provider: str = PROVIDER
    required: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewRequest:
    """changelist_id: the caller's own name for the change, 1 to 200 characters. idempotency_key: of this request, 1 to
    500 characters. repository: by the name that the relays know it by. base_commit, head_commit: the diff between
    them is reviewed. recipients: 1 to 100. review_version: from 1; a rerun needs a higher one.
    """

    changelist_id: str
    idempotency_key: str
    repository: str
    base_commit: str
    head_commit: str
    recipients: Sequence[Recipient]
    review_version: int = 1
    tenant: str = TENANT

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> ReviewRequest:
        """From JSON. An unknown or absent field is refused."""
        known = {one.name for one in fields(cls)}
        for name in given.keys() - known:
            raise ReviewRefused("FIELD_UNKNOWN", "field", name, f"the fields are {', '.join(sorted(known))}.")
        for name in sorted(known - given.keys() - {"review_version", "tenant"}):
            raise ReviewRefused("FIELD_MISSING", name, None, "it must be given.")
        return cls(**{**given, "recipients": _recipients(given["recipients"])})

    @property
    def hash(self) -> bytes:
        """Of what is asked for: the same request under the same key is a repetition, another one differs."""
        asked = asdict(self)
        del asked["idempotency_key"]
        return hashlib.sha256(canonical_json(asked)).digest()


def _recipients(given: object) -> list[Recipient]:
    if not isinstance(given, list):
        raise ReviewRefused("RECIPIENT_INVALID", "recipients", given, "they must be a list.")
    return [_recipient(one) for one in given]


def _recipient(given: object) -> Recipient:
    if isinstance(given, str):
        return Recipient(given)
    known = {one.name for one in fields(Recipient)}
    if not isinstance(given, dict) or "address" not in given or given.keys() - known:
        raise ReviewRefused(
            "RECIPIENT_INVALID", "recipients", given, "each must be an address, or address, provider and required."
        )
    return Recipient(**given)


def checked(request: ReviewRequest) -> ReviewRequest:
    """Raises ReviewRefused for the first field that cannot be right."""
    _text("tenant", request.tenant, 100)
    _text("changelist_id", request.changelist_id, 200)
    _text("idempotency_key", request.idempotency_key, 500)
    _matches("REPOSITORY_INVALID", "repository", request.repository, _NAME, "a name such as shop, in lower case")
    for name in ("base_commit", "head_commit"):
        _matches("COMMIT_INVALID", name, getattr(request, name), _COMMIT, "a commit, a branch or a tag")
    check_version(request.review_version)
    return replace(request, recipients=_checked_recipients(request.recipients))


def _checked_recipients(recipients: Sequence[Recipient]) -> tuple[Recipient, ...]:
    if not 1 <= len(recipients) <= RECIPIENTS_MAX:
        raise ReviewRefused(
            "RECIPIENT_INVALID", "recipients", len(recipients), f"there must be 1 to {RECIPIENTS_MAX} of them."
        )
    by_address: dict[str, Recipient] = {}
    for given in recipients:
        check_address(given.address)
        one = replace(given, address=folded(given.address))
        _matches("PROVIDER_INVALID", "provider", one.provider, _NAME, "a name such as email, in lower case")
        if type(one.required) is not bool:
            raise ReviewRefused("RECIPIENT_INVALID", "required", one.required, "it must be true or false.")
        if by_address.setdefault(one.address, one) != one:
            raise ReviewRefused("RECIPIENT_INVALID", "recipients", one.address, "it is named twice, differently.")
    return tuple(by_address[address] for address in sorted(by_address))


def check_version(version: object) -> None:
    if type(version) is not int or not 1 <= version <= VERSION_MAX:
        raise ReviewRefused("VERSION_INVALID", "review_version", version, f"it must be between 1 and {VERSION_MAX}.")


def folded(address: str) -> str:
    """A mailbox by one name: the case of a domain does not count, that of what stands before it may."""
    local, at, domain = address.rpartition("@")
    return f"{local}{at}{domain.lower()}"


def check_address(address: object) -> None:
    if not isinstance(address, str) or not 3 <= len(address) <= ADDRESS_MAX or not _ADDRESS.fullmatch(address):
        raise ReviewRefused(
            "RECIPIENT_INVALID", "recipient", address, "it must be one mail address, such as ada@example.org."
        )


def _text(name: str, value: object, most: int) -> None:
    is_plain = isinstance(value, str) and 1 <= len(value) <= most and value.isprintable()
    if not is_plain:
        raise ReviewRefused("TEXT_INVALID", name, value, f"it must be a text of 1 to {most} printable characters.")


def _matches(reason: str, name: str, value: object, pattern: re.Pattern[str], what: str) -> None:
    matches: Callable[[str], object] = pattern.fullmatch
    if not isinstance(value, str) or not matches(value) or ".." in value:
        raise ReviewRefused(reason, name, value, f"it must be {what}.")
