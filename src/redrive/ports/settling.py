"""Settling: writing what became of an attempt, fenced by its claim."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, Protocol

from redrive.message import Attempt, Fence, MessageId, WorkerId
from redrive.policy import Settlement
from redrive.ports.clock import Now


class Record(Protocol):
    """Your writes inside our settle transaction: all of it commits, or none."""

    def __call__(self, conn: Any, attempt: Attempt, settlement: Settlement, /) -> Awaitable[None]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A settlement, with what the archive keeps about the attempt.

    text, stack, context: already redacted (`redrive.redact`). kept_answer: with park reason unrecorded, what the
    destination said. suspect: its handler still runs in a thread, so the next attempt runs in a child process.
    """

    attempt: Attempt
    settlement: Settlement
    latency_ms: int | None = None
    text: str | None = None
    stack: str | None = None
    context: Mapping[str, Any] = field(default_factory=dict)
    kept_answer: Mapping[str, Any] | None = None
    policy_version: str | None = None
    suspect: bool = False


@dataclass(frozen=True, slots=True)
class HandOver:
    """Settling these messages claims the next of their ordering keys in the same transaction (see LANES.md)."""

    ids: AbstractSet[MessageId]
    lease_seconds: float


@dataclass(frozen=True, slots=True)
class Settled:
    """refused: claims that were lost; their answers are kept in `late_answer`. repeated: claims that an earlier commit,
    whose reply was lost, had settled. handed_over: new claims of this worker. busy: claims that another transaction has
    locked.
    """

    settled: int
    refused: Sequence[Fence] = ()
    repeated: Sequence[Fence] = ()
    handed_over: Sequence[Attempt] = ()
    busy: Sequence[Fence] = ()


class SettleVerbs(Protocol):
    async def settle(
        self,
        worker: WorkerId,
        outcomes: Sequence[Outcome],
        *,
        hand_over: HandOver | None = None,
        wait: bool = True,
        now: Now = None,
    ) -> Settled:
        """Each is fenced by its claim. Only a delivery without a result hands over its ordering key.

        wait: false = skip what another transaction has locked (a caller's open cancel), and name it in `busy`.
        """

    async def settle_one(
        self,
        worker: WorkerId,
        outcome: Outcome,
        record: Record,
        *,
        on_step: Callable[[str], None],
        wait: bool = True,
        lock_seconds: float | None = None,
        now: Now = None,
    ) -> Settled:
        """Fence, record, settle in one transaction. `on_step` is called with each step's name before it begins.

        wait: as in `settle`. lock_seconds: how long `record` may wait for a lock before RecordWaits is raised.
        """
