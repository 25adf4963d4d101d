"""Carries out a history: one command after the other, while real relays work on a real database; then it is judged."""

import asyncio
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from signal import Signals
from typing import Any, ClassVar, Final, Generic
from uuid import UUID

import psycopg

from redrive.errors import RedriveError
from redrive.kit.proof.commands import Command
from redrive.kit.proof.history_campaign import HistoryType, Say, Tell, Told
from redrive.kit.proof.history_environment import HistoryDatabase, HistoryEnvironment

# A connection that was ended; RuntimeError where its descriptor is already that of another one of this event loop.
LOST: Final = (psycopg.Error, RuntimeError)
LOOK_SECONDS: Final = 0.1
FAULTS: Final[Mapping[str, str]] = {
    "kill": "relay killed",
    "freeze": "relay frozen",
    "exit": "relay ended by itself",
    "stop": "relay stopped",
    "cut": "reply of PostgreSQL lost",
    "server": "PostgreSQL stopped at once",
    "read_only": "PostgreSQL read-only",
    "clock": "clock of PostgreSQL set",
}
# Nothing is in hand, and nothing can be claimed but for `without` destinations and what the `held` messages keep back.
_WAITING: Final = """
SELECT (SELECT count(*) FROM redrive.lease WHERE destination <> ALL (%(without)s))
     + (SELECT count(*) FROM redrive.pending p LEFT JOIN redrive.destination d ON d.name = p.destination
         WHERE p.destination <> ALL (%(without)s) AND p.id <> ALL (%(held)s) AND (p.lane IS NULL OR p.lane NOT IN (
                   SELECT h.lane FROM redrive.pending h WHERE h.id = ANY (%(held)s) AND h.lane IS NOT NULL))
           AND (d.paused_at IS NULL OR d.paused_until IS NOT NULL)
           AND NOT EXISTS (SELECT FROM redrive.parked k WHERE k.lane = p.lane AND k.halts AND k.sequence < p.sequence))
     + (SELECT count(*) FROM redrive.replay r JOIN redrive.replay_item i ON i.replay_id = r.id
         WHERE r.status = 'running' AND i.outcome IS NULL)
"""


@dataclass
class Relay:
    """frozen_at: None while it runs. ending: it was killed or asked to stop."""

    pid: int
    name: str
    frozen_at: float | None = None
    ending: bool = False


# A command: what it answers, None = "done".
Carry = Callable[[Any, Command], Awaitable[str | None]]


class Runner(ABC, Generic[HistoryType]):
    """errors: those that are the answer of a command. kills_whole: whether `kill` ends a relay's children too, where
    the script does not say. unwatched: destinations that `quiet` does not wait for.
    """

    commands: ClassVar[Mapping[str, Carry]]
    limits: ClassVar[Mapping[str, Any]]
    errors: ClassVar[tuple[type[Exception], ...]] = (psycopg.Error, OSError)
    kills_whole: ClassVar[bool] = True
    unwatched: ClassVar[Sequence[str]] = ()

    def __init__(
        self, environment: HistoryEnvironment, database: HistoryDatabase, history: HistoryType, say: Say
    ) -> None:
        self.processes = environment.processes
        self.database = database
        self.history = history
        self.answers: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.said: list[str] = []
        self.relays: list[Relay] = []
        self._say = say
        self._pids: list[int] = []
        self._started = 0

    # for subclasses

    @abstractmethod
    async def begin(self) -> None: ...

    @abstractmethod
    def relay_settings(self) -> Mapping[str, Any]:
        """Beside its database, name and limits."""

    @asynccontextmanager
    async def beside(self) -> AsyncIterator[None]:
        yield

    async def drawn(self, command: Command) -> list[Command]:
        """What people do now, where the script leaves that open (`act`)."""
        return [command]

    async def before(self, command: Command) -> None:
        pass

    @abstractmethod
    async def settle_down(self) -> None:
        """After the last command: everything that can move moves."""

    @abstractmethod
    async def judged(self) -> list[str]:
        """The violations."""

    def held(self) -> Sequence[UUID]:
        """Messages whose rows a producer's open transaction may hold."""
        return ()

    # the run

    async def told(self) -> Told[HistoryType]:
        began = time.monotonic()
        await self.begin()
        for _ in range(self.history.relays):
            await self.start_relay()
        self.note(next(iter(self.history.lines())))
        async with self.beside():
            done = await self._carry_out()
            await self.settle_down()
        violations = await self.judged()
        for sentence in violations:
            self.note(f"  {sentence}")
        return Told(
            history=self.history.with_commands(done),
            violations=violations,
            answers=self.answers,
            faults=self.faults,
            said=self.said,
            seconds=time.monotonic() - began,
        )

    async def _carry_out(self) -> list[Command]:
        done: list[Command] = []
        for command in self.history.commands:
            for drawn in await self.drawn(command):
                done.append(drawn)
                answer = await self._answer(drawn)
                self.answers[f"{drawn.verb}: {answer}"] += 1
                self.note(f"  {len(done):>2} {drawn} -> {answer}")
        return done

    async def _answer(self, command: Command) -> str:
        await self.before(command)
        carry = self.commands.get(command.verb) or COMMANDS[command.verb]
        try:
            return await carry(self, command) or "done"
        except RedriveError as error:
            return str(getattr(error, "reason", error.code))
        except self.errors as error:
            return type(error).__name__

    async def close(self) -> None:
        for pid in self._pids:
            await self.processes.end(pid)

    def note(self, line: str) -> None:
        self.said.append(line)
        self._say(line)

    # relays and other processes

    async def start(self, kind: str, **settings: Any) -> int:
        """A process that is ended with the history."""
        pid = await self.processes.start(kind, **settings)
        self._pids.append(pid)
        return pid

    async def start_relay(self) -> None:
        self._started += 1
        name = f"relay-{self._started}"
        pid = await self.start(
            "relay", dsn=self.database.wire.dsn, name=name, limits=dict(self.limits), **self.relay_settings()
        )
        self.relays.append(Relay(pid, name))

    async def end_relays(self, relays: Sequence[Relay]) -> int:
        """At once, with their children."""
        ended = list(relays)
        for relay in ended:
            relay.ending = True
            self.relays.remove(relay)
            self._pids.remove(relay.pid)
            await self.processes.end(relay.pid)
        return len(ended)

    def relay_of(self, command: Command) -> Relay | None:
        return self.relays[command.values["relay"] % len(self.relays)] if self.relays else None

    def disturb(self, kind: str, pid: int | None = None, *, since: float | None = None) -> None:  # noqa: ARG002
        """pid: None = it was done to the database."""
        self.faults[FAULTS[kind]] += 1

    async def is_quiet(self, seconds: float, *, without: Sequence[str] = ()) -> bool:
        """Nothing was in hand, nothing could be claimed, and no replay was about to put something back."""
        until = time.monotonic() + seconds
        kept = list(self.held())
        while time.monotonic() < until:
            with suppress(*LOST):
                if await self.database.rows(_WAITING, without=list(without), held=kept) == [(0,)]:
                    return True
            await asyncio.sleep(LOOK_SECONDS)
        return False


async def _wait(_: Runner[Any], command: Command) -> None:
    await asyncio.sleep(command.values["seconds"])


async def _quiet(run: Runner[Any], command: Command) -> str:
    return "done" if await run.is_quiet(command.values["seconds"], without=run.unwatched) else "not quiet"


async def _relay(run: Runner[Any], _: Command) -> None:
    await run.start_relay()


async def _kill(run: Runner[Any], command: Command) -> str:
    relay = run.relay_of(command)
    if relay is None:
        return "no relay"
    if command.values.get("whole", run.kills_whole):
        await run.end_relays([relay])
    else:
        relay.ending = True
        run.relays.remove(relay)
        await run.processes.signal(relay.pid, Signals.SIGKILL)
    run.disturb("kill", relay.pid)
    await run.start_relay()
    return "done"


async def _freeze(run: Runner[Any], command: Command) -> str:
    relay = run.relay_of(command)
    if relay is None or relay.frozen_at is not None:
        return "no relay"
    await run.processes.signal(relay.pid, Signals.SIGSTOP)
    relay.frozen_at = time.time()
    return "done"


async def thaw(run: Runner[Any], _: Command | None = None) -> str:
    """Beyond the lease, so that another relay can go on."""
    frozen = [relay for relay in run.relays if relay.frozen_at is not None]
    if not frozen:
        return "none"
    await asyncio.sleep(run.limits["lease_seconds"] + 0.5)
    for relay in frozen:
        await run.processes.signal(relay.pid, Signals.SIGCONT)
        run.disturb("freeze", relay.pid, since=relay.frozen_at)
        relay.frozen_at = None
    return "done"


async def _cut(run: Runner[Any], command: Command) -> None:
    at = command.values["at"]
    if at == "anything":
        run.database.wire.lose_reply()
    else:
        run.database.wire.lose_reply_to(at.encode())
    run.disturb("cut")


async def _stop_server(run: Runner[Any], _: Command) -> None:
    began = time.time()
    await run.database.stop_hard()
    run.disturb("server", since=began)


def by_name(*commands: Carry) -> dict[str, Carry]:
    """By the verbs that they are named for."""
    return {command.__name__.removeprefix("_"): command for command in commands}


COMMANDS: Final[Mapping[str, Carry]] = by_name(_wait, _quiet, _relay, _kill, _freeze, thaw, _cut, _stop_server)


def teller(kind: type[Runner[HistoryType]], **options: Any) -> Tell[HistoryType, Any]:
    """options: of the databases."""

    async def tell(environment: HistoryEnvironment, history: HistoryType, name: str, say: Say) -> Told[HistoryType]:
        async with HistoryDatabase(environment, name, own_server=history.own_server, **options) as database:
            run = kind(environment, database, history, say)
            try:
                return await run.told()
            finally:
                await run.close()

    return tell
