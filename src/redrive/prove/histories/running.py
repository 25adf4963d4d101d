"""Carries out a history of the engine; the observer's log and the handlers' journal are judged.

`EngineRun` is its state; the commands are in `producers`, `people` and `faults`. The answers of producers and
operators go into the judge's book. Beside the script a producer sends to a healthy destination: how long its
messages wait shows what neighbours suffer.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from signal import Signals
from typing import Any, ClassVar, Final
from uuid import UUID

from psycopg.rows import TupleRow

from redrive.kit.proof import journal
from redrive.kit.proof.acts import ACTS
from redrive.kit.proof.commands import Command
from redrive.kit.proof.history_campaign import Told
from redrive.kit.proof.history_environment import OPERATOR_ROLE
from redrive.kit.proof.processes import patience
from redrive.kit.proof.runner import LOOK_SECONDS, LOST, Carry, Relay, Runner, teller, thaw
from redrive.prove.histories import faults, judging, people, producers, steering
from redrive.prove.histories.destinations import HEALTHY
from redrive.prove.histories.drawing import History
from redrive.prove.histories.judging import Book, Delays, Disturbed, Message, Reported
from redrive.prove.histories.producers import OpenTransaction

LIMITS: Final[Mapping[str, Any]] = {
    "lease_seconds": 2.0,
    "reap_every_seconds": 0.3,
    "heartbeat_seconds": 0.3,
    "poll_seconds": 0.25,
    "record_timeout_seconds": 0.8,
    "stop_seconds": 2.5,
    "concurrency": 16,
    "claim_max": 10,
}
LOCK_MS: Final = 700  # producers and people give up then, and are told so
STALL_SECONDS: Final = 0.5
READY_SECONDS: Final = 10.0
STOP_SECONDS: Final = 25.0
QUIET_SECONDS: Final = 60.0  # without an attempt that ends: a lease, the place of a reaper that died, retries
_PAUSED: Final = "SELECT name FROM redrive.destination WHERE paused_at IS NOT NULL AND paused_until IS NULL"
_WAITING: Final = """
SELECT p.id::text,
       format('attempt %%s, due in %%s s by the database''s clock',
              p.attempt, round(extract(epoch FROM p.due_at - clock_timestamp()), 1))
       || CASE WHEN p.suspect THEN ', suspect' ELSE '' END
       || CASE WHEN p.in_doubt_since IS NOT NULL THEN ', in doubt' ELSE '' END
       || CASE WHEN p.cancel_requested THEN ', cancel requested' ELSE '' END
       || coalesce(', lane looked at in ' || (
              SELECT string_agg(round(extract(epoch FROM w.due_at - clock_timestamp()), 1)::text, ' and ')
                FROM redrive.lane_wake w WHERE w.lane = p.lane) || ' s',
              CASE WHEN p.lane IS NULL THEN '' ELSE ', lane never looked at' END)
       || coalesce(', the destination rests for ' || (
              SELECT round(extract(epoch FROM greatest(d.paused_until, d.breaker_until) - clock_timestamp()), 1)::text
                FROM redrive.destination d WHERE d.name = p.destination) || ' s', '')
  FROM redrive.pending p
"""
_STATES: Final = """
SELECT m.id::text,
       CASE WHEN EXISTS (SELECT FROM redrive.pending p JOIN redrive.parked h ON h.lane = p.lane
                          WHERE p.id = m.id AND h.halts AND h.sequence < p.sequence) THEN 'behind'
            ELSE coalesce(k.reason, e.closed, redrive.state_of(m.id), 'gone') END
  FROM redrive.message m LEFT JOIN redrive.parked k ON k.id = m.id
  LEFT JOIN redrive.attempt e ON e.message_id = m.id AND e.closed IS NOT NULL
 WHERE m.destination <> ALL (%s)
"""


@dataclass(frozen=True, kw_only=True)
class EngineTold(Told[History]):
    """delays: of the healthy destination."""

    delays: Delays
    book: Book = field(repr=False)


class EngineRun(Runner[History]):
    """book: for the judge. messages: by name. open: transactions that producers hold open. ahead: of the clock."""

    commands: ClassVar[Mapping[str, Carry]] = {**producers.COMMANDS, **people.COMMANDS, **faults.COMMANDS}
    limits = LIMITS
    errors = (*LOST, OSError)
    kills_whole = False
    unwatched = (HEALTHY,)

    def __init__(self, *values: Any) -> None:
        super().__init__(*values)
        self.book = Book()
        self.messages: dict[str, Message] = {}
        self.open: dict[str, OpenTransaction] = {}
        self.refusing: asyncio.Task[None] | None = None
        self.ahead_seconds = 0.0

    async def told(self) -> EngineTold:
        told = await super().told()
        return EngineTold(**vars(told), delays=judging.delays_of(self.book), book=self.book)

    async def close(self) -> None:
        for one in self.open.values():
            await one.conn.close()
        await super().close()

    # processes

    async def begin(self) -> None:
        self._log = self.database.directory / "observer.log"
        self._handlers = self.database.directory / "handlers.log"
        self._socket = self.database.directory / "observer"
        await self.start("observer", socket=str(self._socket), log=str(self._log))
        while not self._socket.exists():  # noqa: ASYNC110 - by another process
            await asyncio.sleep(0.01)

    def relay_settings(self) -> Mapping[str, Any]:
        return {"socket": str(self._socket), "handlers": str(self._handlers)}

    @contextlib.asynccontextmanager
    async def beside(self) -> AsyncIterator[None]:
        async with _beside(self._supervise(), self._watch_clock()):
            async with _beside(producers.produce_healthy(self)):
                yield
            await self._is_over([])
            await self._stop_relays()

    async def _supervise(self) -> None:
        """A relay that ended by itself is started again; only a handler that ends its process may end it."""
        while True:
            for relay in [one for one in self.relays if not one.ending]:
                code = await self.processes.code(relay.pid)
                if code is None or relay.ending or relay not in self.relays:
                    continue
                self.relays.remove(relay)
                if not self._exits(relay):
                    self.book.complaints.append(f"{relay.name} ended by itself, with {code}.")
                self.disturb("exit", relay.pid, since=time.time() - 2 * LOOK_SECONDS)
                await self.start_relay()
            await asyncio.sleep(LOOK_SECONDS)

    def _exits(self, relay: Relay) -> bool:
        """A handler has ended this process."""
        return any(line["log"] == "exit" and line["pid"] == relay.pid for line in journal.read(self._handlers))

    async def _watch_clock(self) -> None:
        while True:
            before = time.time()
            await asyncio.sleep(LOOK_SECONDS)
            if time.time() - before > LOOK_SECONDS + STALL_SECONDS:
                self.book.disturbed.append(Disturbed(kind="stall", since=before, until=time.time()))

    def disturb(self, kind: str, pid: int | None = None, *, since: float | None = None) -> None:
        super().disturb(kind)
        now = time.time()
        self.book.disturbed.append(Disturbed(kind=kind, pid=pid, since=since or now, until=now))

    def held(self) -> Sequence[UUID]:
        return [UUID(id_) for one in self.open.values() for id_ in one.touched]

    async def stop_relay(self, relay: Relay) -> str:
        """By SIGTERM: it ends with 0 in time, and owns nothing afterwards but what a producer holds open."""
        relay.ending = True
        workers = await self.workers(relay)
        began = time.time()
        await self.processes.signal(relay.pid, Signals.SIGTERM)
        code = None
        while code is None and time.time() < began + STOP_SECONDS:
            await asyncio.sleep(LOOK_SECONDS)
            code = await self.processes.code(relay.pid)
        self.disturb("stop", relay.pid, since=began)
        if code is None:
            self.book.complaints.append(f"{relay.name} did not end within {STOP_SECONDS:.0f} s of SIGTERM.")
        elif code != 0 and not self._exits(relay) and workers:
            self.book.complaints.append(f"{relay.name} ended with {code} when it was asked to stop.")
        elif code == 0 and not self.book.was_away(began, time.time(), "server", "read_only") and not self.refuses:
            left = await self.database.rows(
                "SELECT id::text, destination FROM redrive.lease WHERE worker = ANY (%s) AND NOT id = ANY (%s)",
                *([row[0] for row in workers], list(self.held())),
            )
            if left:
                self.book.complaints.append(f"{relay.name} was stopped and still owns {left}.")
        return "done" if code == 0 else f"ended with {code}"

    async def workers(self, relay: Relay) -> list[TupleRow]:
        """Under which ids it works, once it has begun; none where it does not begin."""
        until = time.monotonic() + READY_SECONDS
        workers: list[TupleRow] = []
        while not workers and time.monotonic() < until and await self.processes.lives(relay.pid):
            with contextlib.suppress(*LOST):
                workers = await self.database.rows("SELECT worker FROM redrive.relay WHERE name = %s", relay.name)
            await asyncio.sleep(0.0 if workers else LOOK_SECONDS)
        return workers

    @property
    def refuses(self) -> bool:
        """The database refuses to write."""
        return self.refusing is not None and not self.refusing.done()

    # people

    async def drawn(self, command: Command) -> list[Command]:
        if command.verb != "act":
            return [command]
        try:
            states: dict[str, str] = dict(await self.database.rows(_STATES, [HEALTHY]))
            paused = await self.database.rows(_PAUSED)
        except LOST:
            return []
        known = {name: states[message.id] for name, message in self.messages.items() if message.id in states}
        return steering.acts(command.values["draw"], known, [row[0] for row in paused])

    # the end

    async def settle_down(self) -> None:
        """Beside the healthy destination."""
        for name in tuple(self.open):
            await producers.rollback(self, Command("rollback", {"tx": name}))
        if self.refusing:
            await self.refusing
        await thaw(self)
        await self._is_over([HEALTHY])

    async def _is_over(self, without: list[str]) -> None:
        """Until messages wait for nothing but a person; what was paused is resumed.

        Given up when no attempt has ended for some time: a machine with much other work is slow, and not stuck.
        """
        began = moved = time.monotonic()
        ended = -1
        while time.monotonic() < min(moved + QUIET_SECONDS * patience(), began + 5 * QUIET_SECONDS * patience()):
            with contextlib.suppress(*LOST):
                query = "SELECT count(*) FROM redrive.attempt WHERE destination <> ALL (%s)"
                ((count,),) = await self.database.rows(query, without)
                moved, ended = (moved, ended) if count == ended else (time.monotonic(), count)
            paused: list[TupleRow] = []
            with contextlib.suppress(*LOST):
                paused = await self.database.rows(_PAUSED)
                for (name,) in paused:
                    await self.database.rows(ACTS["resume"], role=OPERATOR_ROLE, destination=name, who=people.ALICE)
            if await self.is_quiet(1.0, without=without) and not paused:
                return

    async def _stop_relays(self) -> None:
        stopped, self.relays = self.relays, []
        for relay in stopped:
            await self.stop_relay(relay)

    async def judged(self) -> list[str]:
        self._read_logs()
        waiting: dict[str, str] = dict(await self.database.rows(_WAITING))
        rows = await self.database.rows(_STATES, [])
        return judging.judged(
            self.book, {row[0]: Reported(state=row[1], waits_for=waiting.get(row[0], "")) for row in rows}
        )

    def _read_logs(self) -> None:
        self.book.ended_at = time.time()
        self.book.observed = [{**line, "place": place} for place, line in enumerate(journal.read(self._log))]
        lines = list(journal.read(self._handlers))
        self.book.handled = [line for line in lines if line["log"] != "stall"]
        for line in lines:
            match line["log"]:
                case "stall":
                    since, until = line["since"], line["until"]
                case "exit":
                    since = until = line["at"]
                case "block":
                    since, until = line["at"], line["at"] + line["for_seconds"]
                case _:
                    continue
            self.book.disturbed.append(Disturbed(kind=line["log"], pid=line["pid"], since=since, until=until))


tell = teller(EngineRun, options=f"-c lock_timeout={LOCK_MS}", clock=True)


@contextlib.asynccontextmanager
async def _beside(*work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Goes on beside the block; its error is raised at the end."""
    tasks = [asyncio.create_task(one) for one in work]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    for error in ended:
        if isinstance(error, Exception):
            raise error
