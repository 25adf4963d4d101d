"""What a reply of the Case API means, and which code of the taxonomy an answer of the engine stands for.

Two things are told apart: the code, whose category decides whether another attempt can help, and the answer, which says
whether the effect is known. 408, 502, 504, a time-out and a lost reply are NETWORK, and the file may have been attached
all the same: they are `Unknown`, so the Case API is asked before anything else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from redrive import Absent, CannotTell, Delivered, Found, Retryable, Terminal, Unknown
from redrive.kit.transport import Answer, LookupAnswer, clean_code
from redrive.systems.evidence.taxonomy import may_retry
from redrive.transports.http.client import Reply

# The file may have been attached: the status of a proxy, or the Case API's own word for a time-out.
IN_DOUBT_STATUSES: Final = frozenset({408, 502, 504})
IN_DOUBT_CODES: Final = frozenset({"ATTACHMENT_API_TIMEOUT", "NETWORK_TIMEOUT"})
# What the Case API says in `code`, and the code of the taxonomy.
CODES: Final[Mapping[str, str]] = {
    "CASE_NOT_FOUND": "CASE_NOT_FOUND",
    "CASE_DELETED": "CASE_NOT_FOUND",
    "CORRUPTED_FILE": "CORRUPTED_FILE",
    "INVALID_FORMAT": "INVALID_FORMAT",
    "UNAUTHORIZED": "UNAUTHORIZED",
    "SYSTEM_ERROR": "SYSTEM_ERROR",
    "ATTACHMENT_API_TIMEOUT": "ATTACHMENT_API_TIMEOUT",
    "NETWORK_TIMEOUT": "NETWORK_TIMEOUT",
}
ABSENT_CODES: Final = frozenset({"ATTACHMENT_NOT_FOUND", "CASE_NOT_FOUND", "CASE_DELETED"})
# Ends of an attempt that the engine names itself.
_OF_THE_ENGINE: Final[Mapping[str, str]] = {
    "TIMEOUT": "ATTACHMENT_API_TIMEOUT",
    "CUT_OFF": "ATTACHMENT_API_TIMEOUT",
    "CONNECT_TIMEOUT": "NETWORK_TIMEOUT",
}
_STATUS_PREFIX: Final = "HTTP_"
LOOKUP_PREFIX: Final = "LOOKUP_"  # of codes that a question ended with; nothing was sent then


def error_code_of(code: str) -> str:
    """The `attachment_error_code` of an answer's code: a status is its number."""
    code = code.removeprefix(LOOKUP_PREFIX)
    number = code.removeprefix(_STATUS_PREFIX)
    if number != code and number.isascii() and number.isdigit():
        return number
    return _OF_THE_ENGINE.get(code, code)


def answer_of(reply: Reply) -> Answer:
    """What a reply to an attach request means."""
    said = reply.document()
    text = f"The Case API answered with status {reply.status}."
    if 200 <= reply.status < 300:
        id = said.get("attachment_id")
        return Delivered(id) if isinstance(id, str) and id else Unknown("ATTACHED_WITHOUT_ID", text)
    named = CODES.get(str(said.get("code")))
    if reply.status in IN_DOUBT_STATUSES or named in IN_DOUBT_CODES:
        return Unknown(named or f"{_STATUS_PREFIX}{reply.status}", text)
    code = named or clean_code(f"{_STATUS_PREFIX}{reply.status}")
    if may_retry(error_code_of(code)):
        return Retryable(code, text, retry_after=reply.headers.get("Retry-After"), status=reply.status)
    return Terminal(code, text)


def found_of(reply: Reply) -> LookupAnswer:
    """Its own word for "not there" is needed: a 404 of something in between proves nothing."""
    said = reply.document()
    id = said.get("attachment_id")
    if reply.status == 200 and isinstance(id, str) and id:
        return Found(id)
    if reply.status in (404, 410) and said.get("code") in ABSENT_CODES:
        return Absent()
    code = clean_code(f"{LOOKUP_PREFIX}{_STATUS_PREFIX}{reply.status}")
    return CannotTell(code, f"The Case API answered a question with status {reply.status}.")
