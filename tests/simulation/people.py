"""Those who are not the engine: producers, who hand messages in, and operators, who know the truth and act on it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import Any

from redrive.errors import ActRefused
from redrive.message import MessageId, NewMessage, ParkReason, Priority, token
from tests.model_store.transitions import Parked
from tests.simulation.config import Config
from tests.simulation.database import Database, Server
from tests.simulation.loop import SimulationLoop
from tests.simulation.rail import Rail
from tests.simulation.trace import Trace
from tests.simulation.watch import Watch

ORDERED_SHARE = 0.5
WHO = {"actor": "ada", "reason": "because"}
SECOND = {"actor": "ben", "reason": "because"}
# Refusals that are right: money takes two people, and evidence of success leaves only `confirm`.
SECOND_PERSON, EVIDENCE = "a second person has to ask too", "delivered"


class Producers:
    """Until it is calm; some with an ordering key, a delay, an end, a priority, a key twice."""

    def __init__(self, loop: SimulationLoop, database: Database, watch: Watch, trace: Trace, config: Config) -> None:
        self._loop = loop
        self._database = database
        self._watch = watch
        self._trace = trace
        self._terms = config
        self._random = config.random("producers")

    async def run(self) -> None:
        for number, at in enumerate(sorted(self._moments())):
            await asyncio.sleep(at - self._loop.now)
            self._enqueue(number)

    def _moments(self) -> list[float]:
        """One by one, or many at once."""
        count = self._terms.messages
        bursts = self._random.choice((count, count, 1, 3))
        begin = [self._random.uniform(0, self._terms.calm_at) for _ in range(bursts)]
        return [begin[number % bursts] for number in range(count)]

    def _enqueue(self, number: int) -> None:
        message = self._draw(number)
        receipt = self._database.enqueue(message)
        self._trace.name(receipt.id, f"m{number}")
        self._trace.note("enqueue", receipt.id, message.destination, message.order_by or "-", who="producer")
        self._watch.enqueued(receipt.id, message, receipt.sequence)
        if self._random.random() < 0.1:
            again = self._database.enqueue(message)
            if (again.id, again.already_existed) != (receipt.id, True):
                self._watch.violated("a key was taken twice:", receipt.id)

    def _draw(self, number: int) -> NewMessage:
        random = self._random
        ordered = random.random() < ORDERED_SHARE
        key = f"key-{random.randrange(self._terms.keys)}"
        delay = random.uniform(0, 2) if random.random() < 0.15 else 0.0
        life = delay + random.uniform(0.1, 4) if random.random() < self._terms.share("expires") else None
        return NewMessage(
            random.choice(self._terms.names),
            number,
            key=str(number),
            order_by=key if ordered else None,
            due_at=self._database.time + timedelta(seconds=delay) if delay else None,
            expires_at=None if life is None else self._database.time + timedelta(seconds=life),
            priority=random.choice(tuple(Priority)),
        )


class Desk:
    """Operators. What they say of a held message is true: they have asked the destination."""

    def __init__(self, server: Server, rail: Rail, watch: Watch, config: Config) -> None:
        self._server = server
        self._terms = config
        self._database = server.database
        self._rail = rail
        self._watch = watch
        self._random = config.random("desk")

    async def cancel_one(self) -> None:
        if self._watch.lives:
            await self._act("cancel", self._random.choice(list(self._watch.lives)))

    async def clear_one(self) -> None:
        """One of the parked, by what fits."""
        parked = [place for id in self._watch.lives if isinstance(place := self._database.place_of(id), Parked)]
        if not parked:
            return
        one = self._random.choice(parked)
        if self._random.random() < 0.1:
            await self._act("discard", one.id)
        elif one.reason is ParkReason.DEAD:
            await self._act("requeue", one.id, out_of_order=True)
        elif one.reason is ParkReason.UNRECORDED:
            await self._act("repair", one.id)
        else:
            await self._judge(one)

    async def skip_one(self) -> None:
        """The head of some ordering key, unless nobody can: it is being sent, or nothing waits."""
        keys = [life.asked for life in self._watch.lives.values() if life.asked.order_by is not None]
        if keys:
            one = self._random.choice(keys)
            with suppress(ActRefused):
                await self._server.act("skip", one.tenant, one.order_by, **WHO)

    async def test_one(self) -> None:
        """Let one message through to a destination that is down, or that rests."""
        await self._server.act("half_open", self._random.choice(self._terms.names), **WHO)

    async def _judge(self, held: Parked) -> None:
        sent = token(held.id, held.version, held.stage)
        if self._rail.happened(sent):
            await self._act("confirm", held.id)
        elif self._rail.untouched(sent):
            await self._act("deny", held.id)

    async def pause_one(self, seconds: float) -> None:
        name = self._random.choice(self._terms.names)
        await self._server.act("pause", name, **WHO)
        await asyncio.sleep(seconds)
        await self._server.act("resume", name, **WHO)

    async def resume_all(self) -> None:
        for name in self._terms.names:
            await self._server.act("resume", name, **WHO)

    async def _act(self, verb: str, id: MessageId, **options: Any) -> None:
        """By one person and, where money moves, by a second one."""
        for who in (WHO, SECOND):
            try:
                await self._server.act(verb, id, **who, **options)
            except ActRefused as error:
                if SECOND_PERSON in str(error) and who is WHO:
                    continue
                if EVIDENCE not in str(error):
                    self._watch.violated(f"an act that fits was refused: {error}")
            return
