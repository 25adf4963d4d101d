"""Workers: what they report, and the verbs for it. Not part of `Store`, because no relay needs them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from redrive.message import WorkerId
from redrive.ports.clock import Now


class WorkerInfo(NamedTuple):
    """What a worker registers."""

    worker: WorkerId
    name: str
    host: str
    pid: int
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerReport:
    """How far a consumer is in one worker, at the worker's last heartbeat. Counted since the worker started.

    is_connected: whether its source answers; None = it was not asked yet. oldest_seconds: for how long the oldest
    message is in hand. ended_seconds: how long ago a message last ended; None = none has.
    """

    name: str
    is_connected: bool | None
    in_hand: int
    oldest_seconds: float
    ended_seconds: float | None
    received: int
    processed: int
    deferred: int
    seen: int
    given_back: int


class WorkerVerbs(Protocol):
    async def heartbeat_worker(
        self, worker: WorkerInfo, consumers: Sequence[ConsumerReport], *, now: Now = None
    ) -> None:
        """The first one registers."""

    async def deregister_worker(self, worker: WorkerId, *, now: Now = None) -> None: ...
