"""The model store behind a network that fails, shared by all processes of a schedule.

A verb travels there, is carried out as a whole at one moment of the world, and its answer travels back. Each way may
take long, and the connection may be lost before the commit (nothing happened) or after it (it happened, and nobody was
told). What a process had open when it was killed is rolled back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from random import Random
from typing import Any, NamedTuple, cast

from redrive.message import Attempt, MessageId, NewMessage, Receipt, WorkerId
from redrive.policy import Settlement
from redrive.ports import Outcome, Record, Settled, Store, TransientFailure
from tests.model_store.destinations import Destination
from tests.model_store.model import ModelStore
from tests.model_store.tables import START
from tests.model_store.transitions import Move, Parked, Pending, Place
from tests.simulation.bell import Bell
from tests.simulation.config import Config
from tests.simulation.loop import Process, SimulationLoop
from tests.simulation.trace import Trace
from tests.simulation.watch import CALL, Call, Watch

Moved = Callable[[MessageId, Place | None, Move], None]


class Database(ModelStore):
    """The model by the world's clock, with a doorbell; `on_move` hears of every move."""

    on_move: Moved

    def __init__(self, loop: SimulationLoop, bell: Bell, random: Random) -> None:
        self._loop = loop
        self._bell = bell
        super().__init__(random=random)

    @property
    def time(self) -> datetime:
        return START + timedelta(seconds=self._loop.now)

    @time.setter
    def time(self, _: datetime) -> None:
        """It is not ours to set."""

    def _move(self, id: MessageId, move: Move) -> None:
        before = self.place_of(id)
        super()._move(id, move)
        self.on_move(id, before, move)
        if isinstance(before, Parked) and isinstance(move.to, Pending):
            self._bell.ring(move.to.destination)

    def enqueue(self, message: NewMessage, *, now: datetime | None = None, id: MessageId | None = None) -> Receipt:
        receipt = super().enqueue(message, now=now, id=id)
        if message.due_at is None:
            self._bell.ring(message.destination)
        return receipt

    async def resume(self, destination: str, *, actor: str, reason: str, now: datetime | None = None) -> bool:
        self._bell.ring(destination)
        return await super().resume(destination, actor=actor, reason=reason, now=now)

    async def announce_idle(
        self, worker: WorkerId, destinations: Sequence[str], *, seconds: float, now: datetime | None = None
    ) -> None:
        self._bell.announce_idle(worker, destinations, seconds)

    async def echo(self, worker: WorkerId) -> None:
        self._bell.say(worker, "echoed")

    def known(self, name: str) -> Destination:
        return self._destination(name)

    def is_paused_for_good(self, name: str) -> bool:
        """Until a person resumes it."""
        return self.known(name).paused_at is not None and self.known(name).paused_until is None


class Trip(NamedTuple):
    """there, back: seconds on the way. fails: "before" or "after" the commit, or not at all."""

    there: float
    back: float
    fails: str | None


class Server:
    """away_until: before this moment every connection fails."""

    def __init__(self, loop: SimulationLoop, database: Database, watch: Watch, trace: Trace, config: Config) -> None:
        self.database = database
        self.calm = False
        self.away_until = 0.0
        self.calls = 0
        self.failures = 0
        self._loop = loop
        self._watch = watch
        self._trace = trace
        self._terms = config
        self._random = config.random("store")
        self._open: dict[Process, list[Coroutine[Any, Any, Settled]]] = {}

    def connect(self) -> Store:
        """For one process."""
        return cast("Store", Connection(self))

    def roll_back(self, process: Process) -> None:
        """Whoever died holds no lock any more."""
        for transaction in self._open.pop(process, ()):
            transaction.close()

    async def act(self, verb: str, *arguments: Any, **options: Any) -> Any:
        """Carry a verb out here and now: what people and the world itself do."""
        return await self._carry_out(Call(verb, arguments, options, self._loop.process))

    async def call(self, verb: str, *arguments: Any, **options: Any) -> Any:
        """From a process, over the network."""
        trip = self._trip(verb)
        reply: asyncio.Future[Any] = self._loop.create_future()
        call = Call(verb, arguments, options, self._loop.process)
        self._loop.in_world(trip.there, self._begin, call, trip, reply)
        return await reply

    def _begin(self, call: Call, trip: Trip, reply: asyncio.Future[Any]) -> None:
        if self._fails_before(trip):
            self._tell(call, f"{call.verb} fails before its commit")
            self._loop.in_world(trip.back, _fail, reply, TransientFailure("lost"))
        else:
            context = self._loop.world.context.copy()
            _ = self._loop.create_task(self._serve(call, trip, reply), context=context)

    async def _serve(self, call: Call, trip: Trip, reply: asyncio.Future[Any]) -> None:
        try:
            result = await self._carry_out(call)
        except Exception as error:
            self._loop.in_world(trip.back, _fail, reply, error)
            return
        if trip.fails == "after":
            self._tell(call, f"{call.verb} loses its reply")
            self._loop.in_world(trip.back, _fail, reply, TransientFailure("lost"))
        else:
            self._loop.in_world(trip.back, _succeed, reply, result)

    async def settle_one(
        self, worker: WorkerId, outcome: Outcome, record: Record, *, on_step: Callable[[str], None], **options: Any
    ) -> Settled:
        """The record is code of the process, in a transaction that it holds open."""
        trip, process = self._trip("settle_one"), self._loop.process
        call = Call("settle_one", (worker, outcome, record), {"on_step": on_step, **options}, process)
        await self._loop.travel(trip.there)
        if self._fails_before(trip):
            self._tell(call, "settle_one fails before its commit")
            raise TransientFailure("lost")
        with self._opened(process, self._carry_out(call)) as transaction:
            settled: Settled = await transaction
        await self._loop.travel(trip.back)
        if trip.fails == "after":
            self._tell(call, "settle_one loses its reply")
            raise TransientFailure("lost")
        return settled

    @contextmanager
    def _opened(self, process: Process, transaction: Coroutine[Any, Any, Any]) -> Iterator[Coroutine[Any, Any, Any]]:
        self._open.setdefault(process, []).append(transaction)
        yield transaction
        self._open[process].remove(transaction)

    async def _carry_out(self, call: Call) -> Any:
        self.calls += 1
        token = CALL.set(call)
        result = await getattr(self.database, call.verb)(*call.arguments, **call.options)
        CALL.reset(token)
        self._note(call, result)
        self._watch.answered(call, result)
        return result

    def _note(self, call: Call, result: Any) -> None:
        if call.verb not in _DULL:
            self._trace.note(call.verb, _brief(result), who=call.process.name)

    def _tell(self, call: Call, what: str) -> None:
        self.failures += 1
        self._trace.note(what, who=call.process.name)

    def _fails_before(self, trip: Trip) -> bool:
        return trip.fails == "before" or self._loop.now < self.away_until

    def _trip(self, verb: str) -> Trip:
        random, share = self._random, self._terms.share
        if self.calm:
            return Trip(0.001, 0.001, None)
        there, back, fails = random.uniform(0, 0.02), random.uniform(0, 0.02), None
        if random.random() < share("slow_store"):
            late = random.uniform(0, 1.5 * self._terms.limits.lease_seconds)
            there, back = (late, back) if random.random() < 0.5 else (there, late)
        if random.random() < share("fails_before_commit"):
            fails = "before"
        elif random.random() < share("fails_after_commit"):
            fails = "after"
        return Trip(there, back, fails)


class Connection:
    """One process's store: every verb goes the same way, but the one with code of the process in it."""

    def __init__(self, server: Server) -> None:
        self.settle_one = server.settle_one
        self._server = server

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        return partial(self._server.call, verb)


class Records:
    """What `record` writes: one row for each outcome of the destination that records."""

    def __init__(self, loop: SimulationLoop, config: Config) -> None:
        self.calm = False
        self._loop = loop
        self._random = config.random("record")
        self._share = config.share("record_fails")

    async def __call__(self, conn: Any, attempt: Attempt, settlement: Settlement, /) -> None:
        await self._loop.travel(0.001 if self.calm else self._random.uniform(0, 0.02))
        if self.calm or self._random.random() >= self._share:
            return
        how = self._random.choice(("slow", "deadlock", "bug"))
        if how == "slow":
            await self._loop.travel(self._random.uniform(0.2, 1.0))
        elif how == "deadlock":
            raise TransientFailure("deadlock")
        else:
            raise ValueError("a bug of the record")


_DULL = frozenset(
    {
        "heartbeat",
        "low_water",
        "announce_idle",
        "echo",
        "begin_duty",
        "end_duty",
        "suspect_destinations",
        "make_partitions",
        "forget_relays",
        "vacuum",
    }
)


def _brief(result: Any) -> Any:
    attempts: Sequence[Attempt] | None = getattr(result, "attempts", None)
    if attempts is not None:
        return [attempt.id for attempt in attempts]
    return result


def _fail(reply: asyncio.Future[Any], error: Exception) -> None:
    if not reply.done():
        reply.set_exception(error)


def _succeed(reply: asyncio.Future[Any], result: Any) -> None:
    if not reply.done():
        reply.set_result(result)
