"""The error taxonomy (E-05): each code's category, and whether trying again can help.

One entry for each code; an unknown code is SYSTEM, so it is tried again. No code has no category. The functions in SQL
(`sql/tables/001_pre_evidence.sql`) are tested against this table, because generated columns use them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple


class Category(StrEnum):
    NETWORK = "NETWORK"
    SYSTEM = "SYSTEM"
    DATA = "DATA"
    AUTH = "AUTH"


class Code(NamedTuple):
    """reason: why, as a merchant reads it. advice: what the merchant can do."""

    category: Category
    is_retryable: bool
    reason: str
    advice: str


def _codes(category: Category, names: str, reason: str, advice: str, *, is_retryable: bool) -> dict[str, Code]:
    return dict.fromkeys(names.split(), Code(category, is_retryable, reason, advice))


_LATER: Final = "Upload the file again in a new upload; the cause was not in your file."
CASE_NOT_FOUND: Final = "CASE_NOT_FOUND"
NOT_ATTEMPTED: Final = "NOT_ATTEMPTED"
OUTCOME_UNKNOWN: Final = "OUTCOME_UNKNOWN"

CODES: Final[Mapping[str, Code]] = MappingProxyType(
    {
        **_codes(
            Category.NETWORK,
            "ATTACHMENT_API_TIMEOUT NETWORK_TIMEOUT 408 429 502 503 504 CONNECTION_LOST CONNECTION_REFUSED"
            " CONNECT_TIMEOUT GATEWAY_LOST NAME_NOT_RESOLVED TIMEOUT",
            "The case system could not be reached, or had too much to do.",
            _LATER,
            is_retryable=True,
        ),
        **_codes(
            Category.SYSTEM,
            "500 SYSTEM_ERROR",
            "The case system reported an error of its own.",
            _LATER,
            is_retryable=True,
        ),
        **_codes(
            Category.SYSTEM,
            NOT_ATTEMPTED,
            "The file could not be sent to the case system in time.",
            _LATER,
            is_retryable=False,
        ),
        **_codes(
            Category.SYSTEM,
            OUTCOME_UNKNOWN,
            "The case system did not say in time whether it has the file.",
            "Look at the case before you upload the file again: it may be there already.",
            is_retryable=False,
        ),
        **_codes(
            Category.DATA,
            "CORRUPTED_FILE",
            "The file is damaged.",
            "Save the file again, open it once to check it, and upload it in a new upload.",
            is_retryable=False,
        ),
        **_codes(
            Category.DATA,
            "INVALID_FORMAT",
            "The case system does not accept files of this kind.",
            "Save the file as PDF, PNG or JPEG, and upload it in a new upload.",
            is_retryable=False,
        ),
        **_codes(
            Category.DATA,
            "S3_NOT_FOUND",
            "The stored copy of the file is missing.",
            "Upload the file again in a new upload.",
            is_retryable=False,
        ),
        **_codes(
            Category.AUTH,
            "401 403 UNAUTHORIZED",
            "The case system did not allow the file to be attached.",
            "Ask your account manager for access to the case, then upload the file again.",
            is_retryable=False,
        ),
        **_codes(
            Category.AUTH,
            CASE_NOT_FOUND,
            "The case does not exist, or was deleted.",
            "Check the case number; if the case was closed, no evidence is needed any more.",
            is_retryable=False,
        ),
    }
)
UNKNOWN: Final = Code(Category.SYSTEM, True, "The case system reported an error that we do not know.", _LATER)


def code_of(error_code: str) -> Code:
    return CODES.get(error_code, UNKNOWN)


def category_of(error_code: str | None) -> Category | None:
    return None if error_code is None else code_of(error_code).category


def may_retry(error_code: str | None) -> bool:
    """Whether another attempt can help, however many there were."""
    return error_code is not None and code_of(error_code).is_retryable
