"""Carries out a history of the engine: producers, people and faults, one command after the other; then it is judged.

Relays, the observer and the database are real. Commands run one by one, so that a script can be read; what relays do
meanwhile is theirs. All that producers and people were answered is written into the book of the judge. Beside the
script one producer sends to a healthy destination all the while: how long that waits shows what neighbours suffer.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from signal import Signals
from typing import Any, Final
from uuid import UUID

import psycopg
from psycopg.rows import TupleRow

import redrive
from redrive.errors import RedriveError
from redrive.kit.proof import journal
from redrive.kit.proof.commands import Command
from redrive.kit.proof.history_campaign import Say
from redrive.kit.proof.history_environment import OPERATOR_ROLE, HistoryEnvironment, Place
from redrive.produce.payload import canonical_json
from redrive.prove.histories import judging, steering
from redrive.prove.histories.destinations import HEALTHY
from redrive.prove.histories.drawing import OK, History
from redrive.prove.histories.judging import Asked, Book, Delays, Disturbed, Message, Reported

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
# A connection that was ended; RuntimeError where its descriptor is already that of another one of this event loop.
LOST: Final = (psycopg.Error, RuntimeError)
LOCK_MS: Final = 700  # producers and people give up then, and are told so
GIVE_UP_SECONDS: Final = 5.0  # they do so themselves where the server does not: its timers fail when its clock is moved
HEALTHY_EVERY_SECONDS: Final = 0.12
HEALTHY_MAX: Final = 5
LOOK_SECONDS: Final = 0.1
STALL_SECONDS: Final = 0.5
READY_SECONDS: Final = 10.0
STOP_SECONDS: Final = 25.0
QUIET_SECONDS: Final = 60.0  # without an attempt that ends: a lease, the place of a reaper that died, retries
TENANT: Final = "a"
_WAITING: Final = """
SELECT (SELECT count(*) FROM redrive.lease WHERE destination <> ALL (%s))
     + (SELECT count(*) FROM redrive.pending p LEFT JOIN redrive.destination d ON d.name = p.destination
         WHERE p.destination <> ALL (%s) AND p.id <> ALL (%s) AND (p.lane IS NULL OR p.lane NOT IN (
                   SELECT h.lane FROM redrive.pending h WHERE h.id = ANY (%s) AND h.lane IS NOT NULL))
           AND (d.paused_at IS NULL OR d.paused_until IS NOT NULL)
           AND NOT EXISTS (SELECT FROM redrive.parked k WHERE k.lane = p.lane AND k.halts AND k.sequence < p.sequence))
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
_BODY: Final = """
SELECT k.row_version, coalesce(b.bytes, m.body) FROM redrive.parked k JOIN redrive.message m ON m.id = k.id
  LEFT JOIN redrive.body b ON b.message_id = k.id AND b.version = k.version
 WHERE k.id = %s
"""
_UNREADABLE: Final = '{"a":' + "9" * 8000 + "}"


@dataclass(frozen=True, kw_only=True)
class Told:
    """What came of a history, with the acts that were drawn in it.

    answers: `verb: answer` to how often. said: the script, with each answer. delays: of the healthy destination.
    """

    history: History
    violations: list[str]
    answers: Counter[str]
    faults: Counter[str]
    said: list[str]
    seconds: float
    delays: Delays
    book: Book = field(repr=False)


async def tell(environment: HistoryEnvironment, history: History, name: str, say: Say) -> Told:
    """From its first command to the verdict. name: of its database."""
    options = f"-c lock_timeout={LOCK_MS}"
    async with Place(environment, name, own_server=history.own_server, options=options, clock=True) as place:
        teller = _Teller(environment, place, history, say)
        try:
            return await teller.told()
        finally:
            await teller.close()


@dataclass
class _Relay:
    pid: int
    name: str
    frozen_at: float | None = None
    ending: bool = False


@dataclass
class _Open:
    """A transaction that a producer holds open. touched: ids of messages of which it may hold rows."""

    conn: psycopg.AsyncConnection[TupleRow]
    messages: list[Message] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    touched: list[str] = field(default_factory=list)


@dataclass
class _Teller:
    environment: HistoryEnvironment
    place: Place
    history: History
    say: Say
    book: Book = field(default_factory=Book)
    answers: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    said: list[str] = field(default_factory=list)
    _relays: list[_Relay] = field(default_factory=list)
    _open: dict[str, _Open] = field(default_factory=dict)
    _messages: dict[str, Message] = field(default_factory=dict)
    _pids: list[int] = field(default_factory=list)
    _refusing: asyncio.Task[None] | None = None
    _started: int = 0
    _healthy: int = 0
    _ahead: float = 0.0

    async def told(self) -> Told:
        began = time.monotonic()
        await self._open_observer()
        for _ in range(self.history.relays):
            await self._start_relay()
        self._note(next(iter(self.history.lines())))
        done: list[Command] = []
        async with _beside(self._supervise(), self._look_at_clock()):
            async with _beside(self._produce_healthy()):
                for command in self.history.commands:
                    for drawn in await self._drawn(command):
                        done.append(drawn)
                        answer = await self._answer(drawn)
                        self.answers[f"{drawn.verb}: {answer}"] += 1
                        self._note(f"  {len(done):>2} {drawn} -> {answer}")
                await self._settle_down()
            await self._is_over([])
            await self._stop_relays()
        self._read_logs()
        violations = judging.judged(self.book, await self._reported())
        for sentence in violations:
            self._note(f"  {sentence}")
        return Told(
            history=replace(self.history, commands=tuple(done)),
            violations=violations,
            answers=self.answers,
            faults=self.faults,
            said=self.said,
            seconds=time.monotonic() - began,
            delays=judging.delays_of(self.book),
            book=self.book,
        )

    async def close(self) -> None:
        for one in self._open.values():
            await one.conn.close()
        for pid in self._pids:
            await self.environment.processes.end(pid)

    def _note(self, line: str) -> None:
        self.said.append(line)
        self.say(line)

    # processes

    async def _open_observer(self) -> None:
        self._log = self.place.directory / "observer.log"
        self._handlers = self.place.directory / "handlers.log"
        self._socket = self.place.directory / "observer"
        pid = await self.environment.processes.start("observer", socket=str(self._socket), log=str(self._log))
        self._pids.append(pid)
        while not self._socket.exists():  # noqa: ASYNC110 - by another process
            await asyncio.sleep(0.01)

    async def _start_relay(self) -> None:
        self._started += 1
        name = f"relay-{self._started}"
        pid = await self.environment.processes.start(
            "relay",
            dsn=self.place.wire.dsn,
            name=name,
            limits=dict(LIMITS),
            socket=str(self._socket),
            handlers=str(self._handlers),
        )
        self._pids.append(pid)
        self._relays.append(_Relay(pid, name))

    async def _supervise(self) -> None:
        """A relay that ended by itself is started again; only a handler that ends its process may end it."""
        while True:
            for relay in [one for one in self._relays if not one.ending]:
                code = await self.environment.processes.code(relay.pid)
                if code is None or relay.ending or relay not in self._relays:
                    continue
                self._relays.remove(relay)
                asked = [line for line in journal.read(self._handlers) if line["log"] == "exit"]
                if not any(line["pid"] == relay.pid for line in asked):
                    self.book.complaints.append(f"{relay.name} ended by itself, with {code}.")
                self._disturb("exit", relay.pid, since=time.time() - 2 * LOOK_SECONDS)
                await self._start_relay()
            await asyncio.sleep(LOOK_SECONDS)

    async def _look_at_clock(self) -> None:
        while True:
            before = time.time()
            await asyncio.sleep(LOOK_SECONDS)
            if time.time() - before > LOOK_SECONDS + STALL_SECONDS:
                self.book.disturbed.append(Disturbed(kind="stall", since=before, until=time.time()))

    def _disturb(self, kind: str, pid: int | None = None, *, since: float | None = None) -> None:
        now = time.time()
        self.faults[kind] += 1
        self.book.disturbed.append(Disturbed(kind=kind, pid=pid, since=since or now, until=now))

    # producers

    async def _produce_healthy(self) -> None:
        while self._relays and not await self._workers(self._relays[0]):  # noqa: ASYNC110 - of another process
            await asyncio.sleep(LOOK_SECONDS)
        while True:
            with contextlib.suppress(*LOST):
                async with await self.place.connect() as conn:
                    while True:
                        await self._healthy_one(conn)
                        await asyncio.sleep(HEALTHY_EVERY_SECONDS)
                        # A machine that cannot keep up is not to be judged by the queue that this makes.
                        while await self._waiting_healthy(conn) > HEALTHY_MAX:  # noqa: ASYNC110 - of other processes
                            await asyncio.sleep(HEALTHY_EVERY_SECONDS)
            await asyncio.sleep(HEALTHY_EVERY_SECONDS)

    async def _waiting_healthy(self, conn: psycopg.AsyncConnection[TupleRow]) -> int:
        found = await conn.execute("SELECT count(*) FROM redrive.pending WHERE destination = %s", [HEALTHY])
        row = await found.fetchone()
        return int(row[0]) if row else 0

    async def _healthy_one(self, conn: psycopg.AsyncConnection[TupleRow]) -> None:
        self._healthy += 1
        began = time.time()
        async with conn.transaction():
            receipt = await redrive.aenqueue(conn, HEALTHY, {"number": self._healthy}, tenant=TENANT)
            message = Message(
                name=f"healthy-{self._healthy}", id=str(receipt.id), destination=HEALTHY, began_at=began
            )  # fmt: skip
            self.book.messages.append(message)
        message.committed, message.acknowledged_at = True, time.time()

    async def _producer(self) -> psycopg.AsyncConnection[TupleRow]:
        conn = await self.place.connect("redrive_producer", dsn=self.place.wire.dsn)
        await conn.set_autocommit(False)
        return conn

    async def _begin(self, command: Command) -> str:
        if command.values["tx"] in self._open:
            return "is open"
        self._open[command.values["tx"]] = _Open(await self._producer())
        return "done"

    async def _enqueue(self, command: Command) -> str:
        held = self._open.get(command.values.get("tx", ""))
        if held is not None:
            return await self._enqueue_in(held, command)
        async with await self._producer() as conn:
            one = _Open(conn)
            await self._enqueue_in(one, command)
            return await self._committed(one)

    async def _enqueue_in(self, held: _Open, command: Command) -> str:
        values = command.values
        async with asyncio.timeout(GIVE_UP_SECONDS):
            receipt = await redrive.aenqueue(
                held.conn,
                values["destination"],
                {"name": command.message, "faults": values["faults"]},
                key=f"{command.message}",
                tenant=values["tenant"],
                order_by=values.get("key"),
                expires_at=_in(values.get("expires_seconds")),
            )
        message = Message(
            name=command.message,
            id=str(receipt.id),
            destination=values["destination"],
            lane=(values["tenant"], values["key"]) if "key" in values else None,
            committed=False,
            began_at=time.time(),
            expires="expires_seconds" in values,
            calm=set(values["faults"]) <= {OK},
        )
        self._messages[command.message] = message
        self.book.messages.append(message)
        held.messages.append(message)
        return "new"

    async def _cancel(self, command: Command) -> str:
        message = self._messages.get(command.message)
        if message is None:
            return "not known"
        held = self._open.get(command.values.get("tx", ""))
        if held is not None:
            return await self._cancel_in(held, message)
        async with await self._producer() as conn:
            one = _Open(conn)
            answer = await self._cancel_in(one, message)
            ended = await self._committed(one)
            return answer if ended == "done" else ended

    async def _cancel_in(self, held: _Open, message: Message) -> str:
        began = time.time()
        async with asyncio.timeout(GIVE_UP_SECONDS):
            rows = await (await held.conn.execute("SELECT redrive.cancel_1(%s)", [UUID(message.id)])).fetchall()
        asked = Asked(
            verb="cancel", answer=rows[0][0], asked_at=began, answered_at=time.time(), committed=False
        )  # fmt: skip
        message.asked.append(asked)
        held.asked.append(asked)
        held.touched.append(message.id)
        return asked.answer

    async def _commit(self, command: Command) -> str:
        held = self._open.pop(command.values["tx"], None)
        if held is None:
            return "not open"
        async with held.conn:
            return await self._committed(held)

    async def _committed(self, held: _Open) -> str:
        """Whether it did; a reply that is lost leaves that unknown."""
        if held.conn.closed or held.conn.info.transaction_status == psycopg.pq.TransactionStatus.INERROR:
            return "rolled back"
        for message in held.messages:
            message.began_at, message.committed = time.time(), None
        for asked in held.asked:
            asked.committed = None
        try:
            await held.conn.commit()
        except LOST as error:
            if _is_certain(error):
                self._mark(held, committed=False)
            return "unknown"
        self._mark(held, committed=True)
        return "done"

    def _mark(self, held: _Open, *, committed: bool) -> None:
        for message in held.messages:
            message.committed, message.acknowledged_at = committed, time.time()
        for asked in held.asked:
            asked.committed = committed

    async def _rollback(self, command: Command) -> str:
        held = self._open.pop(command.values["tx"], None)
        if held is None:
            return "not open"
        with contextlib.suppress(*LOST):
            await held.conn.rollback()
        await held.conn.close()
        return "done"

    # people

    async def _drawn(self, command: Command) -> list[Command]:
        """What people do now, where the script leaves it open; else the command."""
        if command.verb != "act":
            return [command]
        try:
            states: dict[str, str] = dict(await self.place.rows(_STATES, [HEALTHY]))
            paused = await self.place.rows(
                "SELECT name FROM redrive.destination WHERE paused_at IS NOT NULL AND paused_until IS NULL"
            )
        except LOST:
            return []
        known = {name: states[message.id] for name, message in self._messages.items() if message.id in states}
        return steering.acts(command.values["draw"], known, [row[0] for row in paused])

    async def _answer(self, command: Command) -> str:
        """In one word or two, whatever it is."""
        try:
            return await getattr(self, f"_{command.verb}")(command) or "done"
        except RedriveError as error:
            return error.code
        except (*LOST, OSError) as error:
            return type(error).__name__

    async def _act_on(self, command: Command, query: Any, *values: Any) -> str:
        """One verb of a person, which is written down with its answer."""
        message = self._messages.get(command.message)
        if message is None:
            return "not known"
        asked = Asked(
            verb=command.verb,
            answer="unknown",
            asked_at=time.time(),
            answered_at=time.time(),
            out_of_order=bool(command.values.get("out_of_order")),
        )
        message.asked.append(asked)
        try:
            async with asyncio.timeout(GIVE_UP_SECONDS):
                rows = await self.place.rows(query, *values, role=OPERATOR_ROLE)
            asked.answer = str(rows[0][0]) if rows else "nothing"
        except (*LOST, TimeoutError) as error:
            asked.answer = type(error).__name__ if _is_certain(error) else "unknown"
        asked.answered_at = time.time()
        return asked.answer

    def _id(self, command: Command) -> UUID:
        message = self._messages.get(command.message)
        return UUID(message.id) if message else UUID(int=0)

    async def _requeue(self, command: Command) -> str:
        return await self._act_on(
            command,
            "SELECT redrive.requeue_1(%s, 'alice', 'history', NULL, %s)",
            self._id(command),
            bool(command.values.get("out_of_order")),
        )

    async def _discard(self, command: Command) -> str:
        return await self._act_on(command, "SELECT redrive.discard_1(%s, 'alice', 'history')", self._id(command))

    async def _confirm(self, command: Command) -> str:
        return await self._act_on(command, "SELECT redrive.confirm_1(%s, 'alice', 'history', 'R')", self._id(command))

    async def _deny(self, command: Command) -> str:
        return await self._act_on(command, "SELECT redrive.deny_1(%s, 'alice', 'history')", self._id(command))

    async def _repair(self, command: Command) -> str:
        return await self._act_on(command, "SELECT redrive.repair_1(%s, 'alice', 'history')", self._id(command))

    async def _stop_message(self, command: Command) -> str:
        return await self._act_on(command, "SELECT redrive.cancel_1(%s, 'alice', 'history')", self._id(command))

    async def _skip(self, command: Command) -> str:
        message = self._messages.get(command.message)
        if message is None or message.lane is None:
            return "no key"
        return await self._act_on(command, "SELECT redrive.skip_1(%s, %s, 'alice', 'history')", *message.lane)

    async def _triage(self, command: Command) -> str:
        return await self._act_on(
            command, "SELECT result FROM redrive.triage_1(%s, 'data', 'alice', 'history')", [self._id(command)]
        )

    async def _edit(self, command: Command) -> str:
        await self._triage(command)
        rows = await self.place.rows(_BODY, self._id(command))
        if not rows:
            return "not parked"
        version, body = rows[0]
        payload = {**json.loads(body), "faults": []}
        return await self._act_on(
            command,
            "SELECT redrive.edit_1(%s, %s, %s, 'application/json', '[\"/faults\"]'::json, 'alice', 'history')",
            *(self._id(command), version, canonical_json(payload)),
        )

    async def _replay(self, command: Command) -> str:
        id_ = self._id(command)
        await self._triage(command)
        await self.place.rows(
            "SELECT result FROM redrive.remediate_1(%s, 'alice', 'history', 'it is up')", [id_], role=OPERATOR_ROLE
        )
        return await self._act_on(
            command,
            "SELECT result FROM redrive.create_replay_1('history', NULL, %s::json, NULL, %s, true, 1000, 0, 1, 100,"
            " 'alice', 'history')",
            json.dumps({"ids": [str(id_)]}),
            bool(command.values.get("out_of_order")),
        )

    async def _copy(self, command: Command) -> str:
        message = self._messages.get(command.message)
        if message is None:
            return "not known"
        name = f"{command.message}c{len(self._messages)}"
        began = time.time()
        ((answer, id_),) = await self.place.rows(
            "SELECT result, id FROM redrive.copy_1(%s, %s, 'alice', 'history')",
            *(UUID(message.id), name),
            role=OPERATOR_ROLE,
        )
        if answer == "new":
            copied = replace(
                message,
                name=name,
                id=str(id_),
                committed=True,
                began_at=began,
                acknowledged_at=time.time(),
                expires=False,
                asked=[],
            )
            self._messages[name] = copied
            self.book.messages.append(copied)
        return str(answer)

    async def _group(self, command: Command) -> str:
        rows = await self.place.rows(
            "SELECT redrive.mark_group_1(k.failure_group, %s, 'alice', 'history', 'bob') FROM redrive.parked k"
            " WHERE k.id = %s AND k.failure_group IS NOT NULL",
            *(command.values["act"], self._id(command)),
        )
        return str(rows[0][0]) if rows else "no group"

    async def _pause(self, command: Command) -> str:
        rows = await self.place.rows(
            "SELECT redrive.pause_1(%s, 'alice', 'history')", command.values["destination"], role=OPERATOR_ROLE
        )
        return str(rows[0][0])

    async def _resume(self, command: Command) -> str:
        rows = await self.place.rows(
            "SELECT redrive.resume_1(%s, 'alice', 'history')", command.values["destination"], role=OPERATOR_ROLE
        )
        return str(rows[0][0])

    # time

    async def _wait(self, command: Command) -> None:
        await asyncio.sleep(command.values["seconds"])

    async def _quiet(self, command: Command) -> str:
        return "done" if await self._is_quiet(command.values["seconds"], without=[HEALTHY]) else "not quiet"

    async def _is_quiet(self, seconds: float, *, without: list[str]) -> bool:
        """Whether nothing was in hand, and nothing could be claimed that no producer holds, within that time."""
        until = time.monotonic() + seconds
        held = [UUID(id_) for one in self._open.values() for id_ in one.touched]
        while time.monotonic() < until:
            with contextlib.suppress(*LOST):
                if await self.place.rows(_WAITING, without, without, held, held) == [(0,)]:
                    return True
            await asyncio.sleep(LOOK_SECONDS)
        return False

    async def _jump_clock(self, command: Command) -> str:
        """The clock of the database's server is set, by so many seconds."""
        if self.place.clock is None:
            return "not here"
        self._ahead += command.values["by_seconds"]
        self.place.clock.set_off(self._ahead)
        self._disturb("clock")
        return "done"

    # faults

    def _relay_of(self, command: Command) -> _Relay | None:
        return self._relays[command.values["relay"] % len(self._relays)] if self._relays else None

    async def _relay(self, _: Command) -> None:
        await self._start_relay()

    async def _kill(self, command: Command) -> str:
        relay = self._relay_of(command)
        if relay is None:
            return "no relay"
        relay.ending = True
        self._relays.remove(relay)
        if command.values.get("whole"):
            self._pids.remove(relay.pid)
            await self.environment.processes.end(relay.pid)
        else:
            await self.environment.processes.signal(relay.pid, Signals.SIGKILL)
        self._disturb("kill", relay.pid)
        await self._start_relay()
        return "done"

    async def _freeze(self, command: Command) -> str:
        relay = self._relay_of(command)
        if relay is None or relay.frozen_at is not None:
            return "no relay"
        await self.environment.processes.signal(relay.pid, Signals.SIGSTOP)
        relay.frozen_at = time.time()
        return "done"

    async def _thaw(self, _: Command | None = None) -> str:
        frozen = [relay for relay in self._relays if relay.frozen_at is not None]
        if not frozen:
            return "none"
        await asyncio.sleep(LIMITS["lease_seconds"] + 0.5)  # beyond the lease, so that another relay can go on
        for relay in frozen:
            await self.environment.processes.signal(relay.pid, Signals.SIGCONT)
            self._disturb("freeze", relay.pid, since=relay.frozen_at)
            relay.frozen_at = None
        return "done"

    async def _stop(self, command: Command) -> str:
        relay = self._relay_of(command)
        if relay is None or relay.frozen_at is not None:
            return "no relay"
        relay.ending = True
        self._relays.remove(relay)
        await self._start_relay()
        return await self._stopped(relay)

    async def _stopped(self, relay: _Relay) -> str:
        """By SIGTERM: it ends with 0 in time, and owns nothing afterwards but what a producer holds open."""
        relay.ending = True
        workers = await self._workers(relay)
        began = time.time()
        await self.environment.processes.signal(relay.pid, Signals.SIGTERM)
        code = None
        while code is None and time.time() < began + STOP_SECONDS:
            await asyncio.sleep(LOOK_SECONDS)
            code = await self.environment.processes.code(relay.pid)
        self._disturb("stop", relay.pid, since=began)
        exits = any(line["log"] == "exit" and line["pid"] == relay.pid for line in journal.read(self._handlers))
        if code is None:
            self.book.complaints.append(f"{relay.name} did not end within {STOP_SECONDS:.0f} s of SIGTERM.")
        elif code != 0 and not exits and workers:
            self.book.complaints.append(f"{relay.name} ended with {code} when it was asked to stop.")
        elif code == 0 and not self.book.was_away(began, time.time(), "server", "read_only") and not self._refuses:
            held = [UUID(id_) for one in self._open.values() for id_ in one.touched]
            left = await self.place.rows(
                "SELECT id::text, destination FROM redrive.lease WHERE worker = ANY (%s) AND NOT id = ANY (%s)",
                *([row[0] for row in workers], held),
            )
            if left:
                self.book.complaints.append(f"{relay.name} was stopped and still owns {left}.")
        return "done" if code == 0 else f"ended with {code}"

    async def _workers(self, relay: _Relay) -> list[TupleRow]:
        """Under which ids it works, once it has begun; none where it does not begin."""
        until = time.monotonic() + READY_SECONDS
        workers: list[TupleRow] = []
        while not workers and time.monotonic() < until and await self.environment.processes.lives(relay.pid):
            with contextlib.suppress(*LOST):
                workers = await self.place.rows("SELECT worker FROM redrive.relay WHERE name = %s", relay.name)
            await asyncio.sleep(0.0 if workers else LOOK_SECONDS)
        return workers

    async def _cut(self, command: Command) -> None:
        at = command.values["at"]
        if at == "anything":
            self.place.wire.lose_reply()
        else:
            self.place.wire.lose_reply_to(at.encode())
        self._disturb("cut")

    async def _stop_server(self, _: Command) -> None:
        began = time.time()
        await self.place.stop_hard()
        self._disturb("server", since=began)

    async def _read_only(self, command: Command) -> str:
        if self._refuses:
            return "is so"
        self._refusing = asyncio.create_task(self._refuse_writes(command.values["seconds"]))
        return "begins"

    @property
    def _refuses(self) -> bool:
        return self._refusing is not None and not self._refusing.done()

    async def _refuse_writes(self, seconds: float) -> None:
        began = time.time()
        try:
            with contextlib.suppress(*LOST):
                await self.place.set_read_only(True)
            await asyncio.sleep(seconds)
        finally:
            while True:
                try:
                    await self.place.set_read_only(False)
                    break
                except LOST:
                    await asyncio.sleep(LOOK_SECONDS)
            self._disturb("read_only", since=began)

    async def _spoil(self, command: Command) -> str:
        """A row that no verb would have written: Python cannot read its headers."""
        message = self._messages.get(command.message)
        if message is None:
            return "not known"
        message.calm = False
        async with await self.place.connect() as conn:
            await conn.execute("SET session_replication_role = replica")
            await conn.execute("UPDATE redrive.message SET headers = %s::json WHERE id = %s", [_UNREADABLE, message.id])
        return "done"

    # the end

    async def _settle_down(self) -> None:
        """No more commands: everything that can move moves, beside the healthy destination."""
        for name in tuple(self._open):
            await self._rollback(Command("rollback", {"tx": name}))
        if self._refusing:
            await self._refusing
        await self._thaw()
        await self._is_over([HEALTHY])

    async def _stop_relays(self) -> None:
        stopped, self._relays = self._relays, []
        for relay in stopped:
            await self._stopped(relay)

    def _read_logs(self) -> None:
        self.book.ended_at = time.time()
        self.book.observed = [{**line, "place": place} for place, line in enumerate(journal.read(self._log))]
        lines = list(journal.read(self._handlers))
        self.book.handled = [line for line in lines if line["log"] != "stall"]
        for line in lines:
            match line["log"]:
                case "stall":
                    stall = Disturbed(kind="stall", pid=line["pid"], since=line["since"], until=line["until"])
                    self.book.disturbed.append(stall)
                case "exit":
                    self.book.disturbed.append(
                        Disturbed(kind="exit", pid=line["pid"], since=line["at"], until=line["at"])
                    )
                case "block":
                    until = line["at"] + line["for_seconds"]
                    self.book.disturbed.append(Disturbed(kind="block", pid=line["pid"], since=line["at"], until=until))

    async def _is_over(self, without: list[str]) -> None:
        """Until nothing waits but for a person; what was paused is resumed.

        Given up when no attempt has ended for some time: a machine with much other work is slow, and not stuck.
        """
        began = moved = time.monotonic()
        ended = -1
        while time.monotonic() < min(moved + QUIET_SECONDS, began + 5 * QUIET_SECONDS):
            with contextlib.suppress(*LOST):
                query = "SELECT count(*) FROM redrive.attempt WHERE destination <> ALL (%s)"
                ((count,),) = await self.place.rows(query, without)
                moved, ended = (moved, ended) if count == ended else (time.monotonic(), count)
            paused: list[TupleRow] = []
            with contextlib.suppress(*LOST):
                paused = await self.place.rows(
                    "SELECT name FROM redrive.destination WHERE paused_at IS NOT NULL AND paused_until IS NULL"
                )
                for (name,) in paused:
                    await self.place.rows("SELECT redrive.resume_1(%s, 'alice', 'history')", name, role=OPERATOR_ROLE)
            if await self._is_quiet(1.0, without=without) and not paused:
                return

    async def _reported(self) -> dict[str, Reported]:
        return {row[0]: Reported(state=row[1]) for row in await self.place.rows(_STATES, [])}


@contextlib.asynccontextmanager
async def _beside(*work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Goes on beside the block; an error of it is raised at the end."""
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


def _in(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.now(UTC) + timedelta(seconds=seconds)


def _is_certain(error: Exception) -> bool:
    """Whether the server said that the statement failed; a connection that was lost says nothing."""
    state = error.sqlstate if isinstance(error, psycopg.Error) else None
    return state is not None and state[:2] not in ("57", "08")
