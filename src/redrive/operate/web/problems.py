"""Problems as RFC 9457 describes them: one object with a stable code, never a stack trace.

An unexpected error is logged by its type, and the caller is told only that the request failed.
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from redrive.errors import (
    ActRefused,
    ApproverNeeded,
    KeyReused,
    NotAllowed,
    NotFound,
    OperatorError,
    RedriveError,
    SchemaError,
    Unreachable,
    UsageError,
)
from redrive.operate.operations import explained
from redrive.ports import TransientFailure

CONTENT_TYPE: Final = "application/problem+json"
_STATUSES: Final[tuple[tuple[type[BaseException], int], ...]] = (
    (KeyReused, 409),
    (UsageError, 422),
    (NotFound, 404),
    (NotAllowed, 403),
    (ApproverNeeded, 403),
    (ActRefused, 409),
    (Unreachable, 503),
    (SchemaError, 503),
    (TransientFailure, 503),
)


class Refusal(Exception):
    """The request is not carried out. denied: for lack of permission, so it is kept in the audit."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        denied: bool = False,
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(detail)
        self.status, self.code, self.detail = status, code, detail
        self.denied, self.headers, self.more = denied, dict(headers or {}), more

    def problem(self) -> dict[str, Any]:
        return {
            "type": f"urn:redrive:error:{self.code}",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
            "code": self.code,
            **self.more,
        }


def not_logged_in() -> Refusal:
    return Refusal(401, "NOT_LOGGED_IN", "You are not logged in.", headers={"WWW-Authenticate": "Bearer"})


def status_of(error: BaseException) -> int:
    return next((number for kind, number in _STATUSES if isinstance(error, kind)), 500)


def refusal_of(error: BaseException, dsn: str) -> Refusal:
    known = _in_our_words(error, dsn)
    status = status_of(known)
    if status == 503:
        code = known.code if isinstance(known, RedriveError) else Unreachable.code
        return Refusal(503, code, "The database does not answer as it should.", headers={"Retry-After": "5"})
    if status == 500 or not isinstance(known, RedriveError):
        return Refusal(500, "FAILED", "Something went wrong that should not; the log of the console says where.")
    if isinstance(known, OperatorError):
        return Refusal(status, known.code, known.message, denied=status == 403, next=known.next)
    return Refusal(status, known.code, str(known))


def _in_our_words(error: BaseException, dsn: str) -> BaseException:
    try:
        with explained(dsn):
            raise error
    except BaseException as said:
        return said
