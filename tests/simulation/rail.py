"""The destinations: what goes out, what comes of it and when. They know nothing of the engine.

A request is on its way from its first byte on: whether and when it has its effect, and whether and when an answer comes
back, is drawn then and does not depend on what becomes of whoever sent it. The list of effects is the observer's.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, NamedTuple, Protocol

from redrive.answers import (
    Absent,
    Advance,
    Answer,
    CannotTell,
    Delivered,
    Found,
    LookupAnswer,
    Retryable,
    Terminal,
    Unknown,
)
from redrive.message import FIRST_STAGE, Attempt
from tests.simulation.config import ANSWERS, ASKED, DEAF_SECONDS_MAX, NEVER_TWICE, PLAIN, RECORDED, Config
from tests.simulation.loop import Process, SimulationLoop
from tests.simulation.trace import Trace


@dataclass(frozen=True)
class Sent:
    """One request. effect_after, reply_after: seconds, None = never. deaf: its handler ignores a cancellation."""

    attempt: Attempt
    process: Process
    answer: BaseException
    effect_after: float | None
    reply_after: float
    deaf: bool = False

    @property
    def never_twice(self) -> bool:
        return self.attempt.destination in NEVER_TWICE


When = Literal["soon", "late", "slow"]


class Script(NamedTuple):
    """What a destination may do with a request. effect: when it happens, None = never. reply: when it is answered.

    soon: after the latency. late: at any time up to the longest that an effect may take. slow: after our timeout.
    """

    answer: Callable[[], BaseException]
    effect: When | None
    reply: When


SCRIPTS: Final = (
    Script(Delivered, "soon", "soon"),
    Script(Delivered, "late", "late"),
    Script(Delivered, "late", "slow"),
    Script(partial(Retryable, "BUSY"), None, "soon"),
    Script(partial(Retryable, "BUSY"), None, "slow"),
    Script(partial(Retryable, "LATER", retry_after=0.7), None, "soon"),
    Script(partial(Retryable, "DOWN", destination_down=True), None, "soon"),
    Script(partial(Terminal, "REFUSED"), None, "soon"),
    Script(partial(Advance, "second"), "soon", "soon"),
    Script(partial(Unknown, "LOST"), "soon", "soon"),
    Script(partial(Unknown, "LOST"), "late", "soon"),
    Script(partial(Unknown, "LOST"), None, "soon"),
)
BUGS: Final = (
    Script(partial(ValueError, "a bug of the handler"), None, "soon"),
    Script(partial(ValueError, "a bug of the handler"), "soon", "soon"),
)
PLAIN_DELIVERY: Final = SCRIPTS[0]
assert len(SCRIPTS) == 1 + ANSWERS


class Witness(Protocol):
    def send_began(self, sent: Sent) -> None: ...

    def send_ended(self, sent: Sent) -> None: ...

    def send_answered(self, sent: Sent) -> None: ...

    def effect_happened(self, sent: Sent, count: int) -> None: ...


class Rail:
    """witness: hears of every send and every effect; set before the first one."""

    witness: Witness

    def __init__(self, loop: SimulationLoop, trace: Trace, config: Config) -> None:
        self.calm = False
        self.sends = 0
        self.effects: Counter[str] = Counter()
        self._on_their_way: Counter[str] = Counter()
        self._loop = loop
        self._trace = trace
        self._terms = config
        self._random = config.random("rail")
        self._slow_lookups = self._random.choice((0.0, 0.3, 0.8))

    def transport(self, name: str) -> Any:
        return _AskedTransport(self) if name in (ASKED, RECORDED) else _Transport(self)

    def happened(self, token: str) -> bool:
        return self.effects[token] > 0

    def untouched(self, token: str) -> bool:
        """No effect, and none that may still come."""
        return not self.effects[token] and not self._on_their_way[token]

    async def send(self, attempt: Attempt) -> Answer:
        sent = self._draw(attempt)
        self.sends += 1
        self._trace.note("sends", attempt.id, attempt.number, sent.answer, sent.effect_after, sent.reply_after)
        self.witness.send_began(sent)
        if sent.effect_after is not None:
            self._on_their_way[attempt.token] += 1
            self._loop.in_world(sent.effect_after, self._take_effect, sent)
        try:
            await (self._travel_deaf if sent.deaf else self._loop.travel)(sent.reply_after)
        finally:
            self.witness.send_ended(sent)
        self.witness.send_answered(sent)
        raise sent.answer

    async def _travel_deaf(self, seconds: float) -> None:
        """Whatever tells us to end meanwhile."""
        over = self._loop.now + seconds
        while True:
            try:
                return await self._loop.travel(over - self._loop.now)
            except asyncio.CancelledError:
                pass

    def _draws_deaf(self) -> bool:
        return not self.calm and self._random.random() < self._terms.share("deaf")

    def _take_effect(self, sent: Sent) -> None:
        token = sent.attempt.token
        self._on_their_way[token] -= 1
        self.effects[token] += 1
        self._trace.note("effect", sent.attempt.id, sent.attempt.number, who="rail")
        self.witness.effect_happened(sent, self.effects[token])

    async def lookup(self, attempt: Attempt) -> LookupAnswer:
        there, back = self._latency(), self._latency()
        if not self.calm and self._random.random() < self._slow_lookups:
            back = self._random.uniform(0, 1.5 * self._terms.timeout_seconds)
        blind = not self.calm and self._random.random() < 0.1
        deaf = self._draws_deaf()
        await self._loop.travel(there)
        found = self.effects[attempt.token] > 0
        self._trace.note("asked", attempt.id, "cannot tell" if blind else "found" if found else "absent")
        await (self._travel_deaf(self._random.uniform(0, DEAF_SECONDS_MAX)) if deaf else self._loop.travel(back))
        if blind:
            return CannotTell()
        return Found(reference="r") if found else Absent()

    def _draw(self, attempt: Attempt) -> Sent:
        script = PLAIN_DELIVERY if self.calm else self._script(attempt)
        late = self._random.uniform(self._random.choice((0.0, 0.8)), 1.0) * self._terms.effect_seconds_max
        slow = self._terms.timeout_seconds * self._random.uniform(1.0, 2.5)
        moments = {"soon": min(self._latency(), late), "late": late, "slow": slow}
        effect_after = None if script.effect is None else moments[script.effect]
        answer = script.answer()
        reply_after = moments[script.reply]
        if isinstance(answer, Delivered | Advance):
            reply_after = max(reply_after, effect_after or 0.0)
        reply_after += self._latency()
        deaf = self._draws_deaf()
        if deaf:
            reply_after = max(reply_after, self._random.uniform(0, DEAF_SECONDS_MAX))
        return Sent(attempt, self._loop.process, answer, effect_after, reply_after, deaf)

    def _script(self, attempt: Attempt) -> Script:
        if self._random.random() < self._terms.share("bugs"):
            return self._random.choice(BUGS)
        script = self._random.choices(SCRIPTS, (4, *self._terms.answers))[0]
        # Only where nobody is asked: a lookup that finds it could not say which stage comes next.
        may_advance = attempt.destination == PLAIN and attempt.stage == FIRST_STAGE
        return PLAIN_DELIVERY if isinstance(script.answer(), Advance) and not may_advance else script

    def _latency(self) -> float:
        if self.calm:
            return 0.001
        return min(self._random.expovariate(1 / self._terms.latency_seconds), self._terms.effect_seconds_max)


class _Transport:
    def __init__(self, rail: Rail) -> None:
        self._rail = rail

    async def send(self, attempt: Attempt, /) -> Answer | None:
        return await self._rail.send(attempt)


class _AskedTransport(_Transport):
    async def lookup(self, attempt: Attempt, /) -> LookupAnswer:
        return await self._rail.lookup(attempt)
