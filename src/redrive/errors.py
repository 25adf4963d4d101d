"""Errors, grouped by who must act.

The caller (`UsageError`, raised at the call, nothing changed), the operator (`OperatorError`, whose message
names the command that helps), or no person (`ClaimLost`, `NotFinished`). A destination's answer is not such an error:
see `redrive.answers`. Every class has a stable `code`; it is the label in logs and the anchor in the docs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, Self

if TYPE_CHECKING:
    from redrive.message import Status

APPROVER_ADVICE: Final = "the same by an approver: a login with the role redrive_approver"


class RedriveError(Exception):
    """Base of everything that Redrive raises."""

    code: ClassVar[str] = "REDRIVE_ERROR"


class UsageError(RedriveError, ValueError):
    """The caller passed something that cannot be accepted. Nothing was changed."""

    code = "USAGE"


class InvalidValue(UsageError):
    """A name, key, header, time or setting is outside its bounds; the message has the value and the bound."""

    code = "INVALID_VALUE"


class InvalidPayload(UsageError):
    """The payload is not JSON (or bytes), is too large, or is nested too deeply."""

    code = "INVALID_PAYLOAD"


class NoOpenTransaction(UsageError):
    """The connection is in autocommit mode with no transaction open, so the message could not commit with your data."""

    code = "NO_OPEN_TRANSACTION"


class OpenTransaction(UsageError):
    """A transaction is open on the connection that shall wait; what it waits for could never come."""

    code = "OPEN_TRANSACTION"


class KeyReused(UsageError):
    """The idempotency key belongs to a message with another payload. Your transaction is still usable."""

    code = "KEY_REUSED"


class DestinationOwned(UsageError):
    """The destination belongs to a system, whose own functions alone enqueue there. Your transaction has failed."""

    code = "DESTINATION_OWNED"


class UnsupportedConnection(UsageError):
    """The object handed to `enqueue` is not a connection that Redrive knows."""

    code = "UNSUPPORTED_CONNECTION"


class OperatorError(RedriveError):
    """An operator has to act; `next` names the command or setting that helps."""

    code = "OPERATOR"

    def __init__(self, message: str, *, next: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.next = next

    def __str__(self) -> str:
        return f"{self.message} Next: {self.next}" if self.next else self.message


class SchemaError(OperatorError):
    """The database's schema is absent, behind, or not what this version of Redrive expects."""

    code = "SCHEMA"


class SettingsError(OperatorError):
    """A setting is unknown, out of bounds, or contradicts another one."""

    code = "SETTINGS"


class Unreachable(OperatorError):
    """A server that is needed does not answer."""

    code = "UNREACHABLE"


class QueueMissing(OperatorError):
    """There is no queue of the name that a source consumes from."""

    code = "QUEUE_MISSING"


class LoginRefused(OperatorError):
    """A broker refuses the login of a source, or the login may not read there."""

    code = "LOGIN_REFUSED"


class NotFound(OperatorError):
    """There is no message, destination or record of that name."""

    code = "NOT_FOUND"

    @classmethod
    def message_of(cls, id: object) -> Self:
        return cls(f"There is no message {id}.", next="redrive messages list")


class NotAllowed(OperatorError):
    """The database login has no privilege for it; nothing was changed."""

    code = "NOT_ALLOWED"


class ActRefused(OperatorError):
    """The act does not fit the state which the message is in; nothing was changed."""

    code = "ACT_REFUSED"


class ApproverNeeded(ActRefused):
    """Another person has asked for the same, and the second one must be an approver; nothing was changed."""

    code = "ROLE_TOO_LOW"

    def __init__(self, message: str, *, next: str = APPROVER_ADVICE) -> None:
        super().__init__(message, next=next)


class NotFinished(RedriveError, TimeoutError):
    """The message is still under way, and the time to wait for it is over. It goes on; `status` is how it stands."""

    code = "NOT_FINISHED"

    def __init__(self, message: str, *, status: Status) -> None:
        super().__init__(message)
        self.status = status


class ClaimLost(RedriveError):
    """The claim ran out and another relay may have the message. Nothing to do: the outcome was kept as evidence."""

    code = "CLAIM_LOST"
