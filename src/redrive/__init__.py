"""Redrive: a transactional outbox and retry engine for PostgreSQL.

What your transaction committed is attempted until it is done, never twice where the other side can be asked, and never
silently lost. Producers need `enqueue` and nothing else; importing this package loads no third-party module, and what a
relay needs is loaded when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redrive.lazy import loader, modules_of

__version__ = "0.1.0"

if TYPE_CHECKING:
    from redrive.answers import Absent as Absent
    from redrive.answers import Advance as Advance
    from redrive.answers import CannotTell as CannotTell
    from redrive.answers import Delivered as Delivered
    from redrive.answers import Found as Found
    from redrive.answers import Retryable as Retryable
    from redrive.answers import Terminal as Terminal
    from redrive.answers import Unknown as Unknown
    from redrive.app import App as App
    from redrive.app import Destination as Destination
    from redrive.app import Duty as Duty
    from redrive.completion import acomplete as acomplete
    from redrive.completion import complete as complete
    from redrive.errors import ActRefused as ActRefused
    from redrive.errors import ClaimLost as ClaimLost
    from redrive.errors import DestinationOwned as DestinationOwned
    from redrive.errors import InvalidPayload as InvalidPayload
    from redrive.errors import InvalidValue as InvalidValue
    from redrive.errors import KeyReused as KeyReused
    from redrive.errors import NoOpenTransaction as NoOpenTransaction
    from redrive.errors import NotFinished as NotFinished
    from redrive.errors import NotFound as NotFound
    from redrive.errors import OpenTransaction as OpenTransaction
    from redrive.errors import RedriveError as RedriveError
    from redrive.errors import UsageError as UsageError
    from redrive.message import Attempt as Attempt
    from redrive.message import CancelAnswer as CancelAnswer
    from redrive.message import HistoryEntry as HistoryEntry
    from redrive.message import MessageId as MessageId
    from redrive.message import NewMessage as NewMessage
    from redrive.message import Priority as Priority
    from redrive.message import Receipt as Receipt
    from redrive.message import Status as Status
    from redrive.policy import Backoff as Backoff
    from redrive.policy import Breaker as Breaker
    from redrive.policy import Policy as Policy
    from redrive.policy import Settlement as Settlement
    from redrive.produce.api import aenqueue as aenqueue
    from redrive.produce.api import aenqueue_many as aenqueue_many
    from redrive.produce.api import enqueue as enqueue
    from redrive.produce.api import enqueue_many as enqueue_many
    from redrive.produce.keys import key as key
    from redrive.produce.message_status import acancel as acancel
    from redrive.produce.message_status import astatus as astatus
    from redrive.produce.message_status import cancel as cancel
    from redrive.produce.message_status import status as status
    from redrive.produce.message_status import wait as wait
    from redrive.produce.message_status import wait_async as wait_async
    from redrive.settings import Settings as Settings
    from redrive.system import System as System

# Public name -> the module that has it; the type checker reads the imports above.
_HOME = {
    "redrive.answers": "Absent Advance CannotTell Delivered Found Retryable Terminal Unknown",
    "redrive.app": "App Destination Duty",
    "redrive.completion": "acomplete complete",
    "redrive.errors": "ActRefused ClaimLost DestinationOwned InvalidPayload InvalidValue KeyReused NoOpenTransaction "
    "NotFinished NotFound OpenTransaction RedriveError UsageError",
    "redrive.message": "Attempt CancelAnswer HistoryEntry MessageId NewMessage Priority Receipt Status",
    "redrive.policy": "Backoff Breaker Policy Settlement",
    "redrive.produce.api": "aenqueue aenqueue_many enqueue enqueue_many",
    "redrive.produce.keys": "key",
    "redrive.produce.message_status": "acancel astatus cancel status wait wait_async",
    "redrive.settings": "Settings",
    "redrive.system": "System",
}
_MODULE_OF = modules_of(_HOME)

__all__ = sorted(_MODULE_OF)  # noqa: PLE0605 - one list of names, not two


if not TYPE_CHECKING:  # a type checker that sees it takes every misspelt name for one of ours
    __getattr__ = loader(__name__, _MODULE_OF)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
