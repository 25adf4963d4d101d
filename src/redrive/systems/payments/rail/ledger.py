"""The rail's own book: every request, acceptance and effect, on disk before it is answered.

Append-only, one JSON object a line (`redrive.kit.proof.journal`); a kill leaves at most half a line, which is ignored.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final

from redrive.kit.proof import journal

PAGE_MAX: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A payment order: the fields of a request that its effect keeps."""

    token: str
    instruction_id: str
    participant_id: str
    sequence_id: int
    rail_type: str
    amount: str
    currency: str
    destination: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """Money that moved. cursor: its place in the statement, from 1."""

    cursor: int
    token: str
    instruction_id: str
    participant_id: str
    sequence_id: int
    amount: str
    currency: str
    reference: str
    effected_at: float


class Ledger:
    """Two effects of one token are two effects: whether that may happen is the rail's profile."""

    def __init__(self, path: Path) -> None:
        self._effects: list[Effect] = []
        self._durable = 0  # so many of them are on disk; the others are not shown yet
        self._by_token: dict[str, list[Effect]] = defaultdict(list)
        self._orders: dict[str, Order] = {}
        self._requests: Counter[tuple[str, str]] = Counter()
        self._accepted: dict[str, tuple[Order, float]] = {}
        for line in journal.read(path):
            self._remember(line)
        self._journal = journal.SharedJournal(path)

    def close(self) -> None:
        self._journal.close()

    def effect_of(self, token: str) -> Effect | None:
        found = self._by_token.get(token)
        return found[0] if found and found[0].cursor <= self._durable else None

    def order_of(self, token: str) -> Order | None:
        """What was first accepted or paid under this token."""
        return self._orders.get(token)

    def accepted(self) -> Sequence[tuple[Order, float]]:
        """What will be paid, and when: neither a request nor a kill takes it back."""
        return list(self._accepted.values())

    def is_accepted(self, token: str) -> bool:
        return token in self._accepted

    def page(self, *, after: int, limit: int) -> Sequence[Effect]:
        return self._effects[after : min(after + limit, self._durable)]

    async def request(self, call: str, token: str, **noted: Any) -> int:
        """Returns which one of its kind it is for this token."""
        self._requests[call, token] += 1
        nth = self._requests[call, token]
        await self._journal.append(log="request", call=call, token=token, nth=nth, at=time.time(), **noted)
        return nth

    def asked(self, call: str, token: str) -> int:
        return self._requests[call, token]

    async def accept(self, order: Order, *, due_at: float) -> None:
        self._orders.setdefault(order.token, order)
        self._accepted[order.token] = (order, due_at)
        await self._journal.append(log="accepted", **asdict(order), due_at=due_at)

    async def pay(self, order: Order) -> Effect:
        """Once this returns the effect has happened."""
        self._orders.setdefault(order.token, order)
        cursor = len(self._effects) + 1
        kept = {name: value for name, value in asdict(order).items() if name in _EFFECT}
        effect = Effect(cursor=cursor, reference=f"R-{cursor:08}", effected_at=time.time(), **kept)
        self._add(effect)
        await self._journal.append(log="effect", order=asdict(order), **asdict(effect))
        self._durable = max(self._durable, cursor)  # the journal keeps the order of the calls
        self._accepted.pop(order.token, None)
        return effect

    async def note(self, **line: Any) -> None:
        """A line for readers of the log only."""
        await self._journal.append(**line, at=time.time())

    def _add(self, effect: Effect) -> None:
        self._effects.append(effect)
        self._by_token[effect.token].append(effect)

    def _remember(self, line: journal.Line) -> None:
        match line.get("log"):
            case "request":
                self._requests[line["call"], line["token"]] += 1
            case "accepted":
                order = _of(Order, line)
                self._orders.setdefault(order.token, order)
                self._accepted[order.token] = (order, line["due_at"])
            case "effect":
                self._orders.setdefault(line["token"], _of(Order, line["order"]))
                self._accepted.pop(line["token"], None)
                self._add(_of(Effect, line))
                self._durable = len(self._effects)


def effects_in(lines: Iterable[journal.Line]) -> list[Effect]:
    return [_of(Effect, line) for line in lines if line.get("log") == "effect"]


def read_effects(path: Path) -> list[Effect]:
    return effects_in(journal.read(path))


def _of(kind: type[Any], line: Mapping[str, Any]) -> Any:
    return kind(**{one.name: line[one.name] for one in fields(kind)})


_EFFECT: Final = frozenset(one.name for one in fields(Effect))
