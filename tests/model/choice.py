"""What a claim may choose, room by room: unordered messages by age, of the lanes any, in the shares of LANES.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from redrive.ports import ClaimRequest
from tests.model_store.model import ModelStore
from tests.model_store.transitions import Pending


@dataclass(frozen=True)
class Choice:
    """heads: of lanes that may go. others: unordered messages that are due, the oldest first."""

    room: int
    heads: Sequence[Pending]
    others: Sequence[Pending]

    @property
    def everything(self) -> Sequence[Pending]:
        return [*self.heads, *self.others]

    def check(self, taken: Sequence[Pending], *, more: bool) -> None:
        """more: the claim said itself that it did not come to an end."""
        heads = [p for p in taken if p in self.heads]
        others = [p for p in taken if p not in self.heads]
        assert len(heads) in self._shares() or (more and len(heads) < min(self._shares()))
        assert others == self.others[: self.room - len(heads)]

    def _shares(self) -> set[int]:
        """How many heads, whoever has the odd place: half of the room at least, and what the others leave."""
        left = self.room - len(self.others)
        return {min(len(self.heads), max(half, left)) for half in (self.room // 2, (self.room + 1) // 2)}


def choices(model: ModelStore, claim_requests: Sequence[ClaimRequest], now: datetime) -> list[Choice]:
    places = model.places().values()
    waiting = [p for p in places if isinstance(p, Pending) and not p.suspect and p.due_at <= now]
    unordered = sorted((p for p in waiting if p.lane is None), key=lambda p: (p.due_at, p.id))
    free = model._free_heads()
    heads = [p for p in waiting if p.lane is not None and free.get(p.lane) == p]
    return [
        Choice(room.room, _of(heads, room), _of(unordered, room))
        for room in claim_requests
        if not model.is_paused(room.destination)
    ]


def _of(pending: Sequence[Pending], room: ClaimRequest) -> list[Pending]:
    return [p for p in pending if (p.destination, p.level) == (room.destination, room.level)]
