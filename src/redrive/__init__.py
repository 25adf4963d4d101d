"""Redrive: a transactional outbox and retry engine for PostgreSQL.

What your transaction committed is attempted until it is done, never twice where the other side can be asked, and never
silently lost. Producers need `enqueue` and nothing else; importing this package loads no third-party module, and what a
relay needs is loaded when it is first used.
"""

from typing import TYPE_CHECKING

from redrive.lazy import export

__version__ = "0.1.0"

if TYPE_CHECKING:
    # isort: off
    # fmt: off
    from redrive.answers import (
        Absent as Absent, Advance as Advance, CannotTell as CannotTell, Delivered as Delivered, Found as Found,
        Retryable as Retryable, Terminal as Terminal, Unknown as Unknown,
    )
    from redrive.app import App as App, Destination as Destination, Duty as Duty
    from redrive.completion import acomplete as acomplete, complete as complete
    from redrive.consume.event import Event as Event
    from redrive.errors import (
        ActRefused as ActRefused, ClaimLost as ClaimLost, DestinationOwned as DestinationOwned,
        InvalidPayload as InvalidPayload, InvalidValue as InvalidValue, KeyReused as KeyReused,
        NoOpenTransaction as NoOpenTransaction, NotFinished as NotFinished, NotFound as NotFound,
        OpenTransaction as OpenTransaction, RedriveError as RedriveError, UsageError as UsageError,
    )
    from redrive.message import (
        Attempt as Attempt, CancelAnswer as CancelAnswer, HistoryEntry as HistoryEntry, MessageId as MessageId,
        NewMessage as NewMessage, Priority as Priority, Receipt as Receipt, Status as Status,
    )
    from redrive.policy import Backoff as Backoff, Breaker as Breaker, Policy as Policy, Settlement as Settlement
    from redrive.produce.api import (
        aenqueue as aenqueue, aenqueue_many as aenqueue_many, enqueue as enqueue, enqueue_many as enqueue_many,
    )
    from redrive.produce.keys import key as key
    from redrive.produce.message_status import (
        acancel as acancel, astatus as astatus, cancel as cancel, status as status, wait as wait,
        wait_async as wait_async,
    )
    from redrive.settings import Settings as Settings
    from redrive.system import System as System
    # fmt: on
    # isort: on

# Public name -> the module that has it; the type checker reads the imports above.
__all__ = export(  # noqa: PLE0605 - the names are listed once
    __name__,
    {
        "answers": "Absent Advance CannotTell Delivered Found Retryable Terminal Unknown",
        "app": "App Destination Duty",
        "completion": "acomplete complete",
        "consume.event": "Event",
        "errors": "ActRefused ClaimLost DestinationOwned InvalidPayload InvalidValue KeyReused NoOpenTransaction "
        "NotFinished NotFound OpenTransaction RedriveError UsageError",
        "message": "Attempt CancelAnswer HistoryEntry MessageId NewMessage Priority Receipt Status",
        "policy": "Backoff Breaker Policy Settlement",
        "produce.api": "aenqueue aenqueue_many enqueue enqueue_many",
        "produce.keys": "key",
        "produce.message_status": "acancel astatus cancel status wait wait_async",
        "settings": "Settings",
        "system": "System",
    },
)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
