"""Many histories, some at a time; one that is violated is shrunk to the commands that it needs, and printed."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Generic, LiteralString, TypedDict, TypeVar

from redrive.kit.proof.commands import History
from redrive.kit.proof.directories import open_directory
from redrive.kit.proof.history_environment import HistoryEnvironment
from redrive.kit.proof.report import Progress
from redrive.system import System

Say = Callable[[str], None]

SEEDS_OF_A_RUN: Final = 100_000
SHRINK_SECONDS: Final = 120.0
# A shorter history that is not violated at once may be violated the next time: relays have their own pace.
TRIES: Final = 2


HistoryType = TypeVar("HistoryType", bound=History)


@dataclass(frozen=True, kw_only=True)
class Told(Generic[HistoryType]):
    """violations: sentences that begin with their class in brackets. answers: `verb: answer` to how often. said: the
    script, with each answer.
    """

    history: HistoryType
    violations: list[str]
    answers: Counter[str]
    faults: Counter[str]
    said: list[str]
    seconds: float


ToldType = TypeVar("ToldType", bound=Told[Any])
HistoriesType = TypeVar("HistoriesType", bound="Histories[Any]")
# Carries out a history in an environment, in a database of that name; the last one hears each line of the script.
Tell = Callable[[HistoryEnvironment, HistoryType, str, Say], Awaitable[ToldType]]


@dataclass(frozen=True, kw_only=True)
class Violated:
    proof: str
    seed: int
    sentences: Sequence[str]
    script: Sequence[str]

    def lines(self) -> Iterator[str]:
        yield f"History {self.seed}: {' '.join(self.sentences)}"
        yield f"It is repeated by: redrive prove {self.proof} --history {self.seed}"
        yield f"The shortest script that was found, which redrive prove {self.proof} --script FILE repeats:"
        yield from (f"    {line}" for line in self.script)


@dataclass(frozen=True, kw_only=True)
class Histories(Generic[ToldType]):
    seconds: float = 0.0
    server: str = ""
    violated: Sequence[Violated] = ()
    told: Sequence[ToldType] = field(default=(), repr=False)

    @property
    def count(self) -> int:
        return len(self.told)

    @property
    def commands(self) -> int:
        return sum(len(one.history.commands) for one in self.told)

    @property
    def answers(self) -> Mapping[str, int]:
        return add_up(one.answers for one in self.told)

    @property
    def faults(self) -> Mapping[str, int]:
        return add_up(one.faults for one in self.told)

    @property
    def violations(self) -> list[str]:
        return ["\n".join(one.lines()) for one in self.violated]

    def counts(self) -> dict[str, int]:
        if not self.count:
            return {}
        counts = {"histories": self.count, "commands": self.commands, **self.more_counts()}
        counts |= {f"fault: {name}": count for name, count in self.faults.items()}
        return counts | {f"answer: {name}": count for name, count in self.answers.items()}

    def more_counts(self) -> dict[str, int]:
        return {}


def _say_nothing(_: str) -> None:
    pass


class HistoryOptions(TypedDict, total=False):
    """Of a proof, as `redrive.kit.group.history_options` gives them. histories: how many. history: only that of this
    seed. script: only the one in this file."""

    histories: int | None
    history: int | None
    script: Path | None


@dataclass(frozen=True, kw_only=True)
class Campaign(Generic[HistoryType, HistoriesType]):
    """proof: its name on the command line. module: what the fork server runs. tables: besides those of the engine and
    the systems.
    """

    proof: str
    module: str
    draw: Callable[[int], HistoryType]
    read: Callable[[str], HistoryType]
    tell: Tell[HistoryType, Any]
    kind: type[HistoriesType]
    at_a_time: int
    systems: Sequence[System] = ()
    tables: LiteralString = ""

    def drawn(self, seed: int, count: int) -> list[HistoryType]:
        return [self.draw(seed * SEEDS_OF_A_RUN + number) for number in range(count)]

    def named(self, options: HistoryOptions) -> HistoryType | None:
        """The only one that is asked for, where one is."""
        if script := options.get("script"):
            return self.read(script.read_text("utf-8"))
        seed = options.get("history")
        return None if seed is None else self.draw(seed)

    def run(self, histories: Sequence[HistoryType], *, progress: Progress, say: Say = _say_nothing) -> HistoriesType:
        """say: hears each line of their scripts as it happens."""
        with open_directory() as directory:
            environment = HistoryEnvironment(directory, self.module, systems=self.systems, tables=self.tables)
            return asyncio.run(self._run(environment, histories, progress, say))

    async def _run(
        self, environment: HistoryEnvironment, histories: Sequence[HistoryType], progress: Progress, say: Say
    ) -> HistoriesType:
        room = asyncio.Semaphore(self.at_a_time)
        told: list[Any] = []

        async def one(number: int, history: HistoryType) -> None:
            async with room:
                told.append(await self.tell(environment, history, f"history_{number}", say))
                progress("histories", len(told), len(histories))

        began = time.monotonic()
        async with environment:
            async with asyncio.TaskGroup() as group:
                for number, history in enumerate(histories):
                    group.create_task(one(number, history))
            broken = sorted((one for one in told if one.violations), key=lambda one: one.history.seed)
            violated = [await self._shrunk(environment, one) for one in broken]
        return self.kind(seconds=time.monotonic() - began, server=environment.name, violated=violated, told=told)

    async def _shrunk(self, environment: HistoryEnvironment, found: Told[HistoryType]) -> Violated:
        """Leave out commands, many at first, while it is still violated."""
        until = time.monotonic() + SHRINK_SECONDS
        best, runs = found, 0
        size = max(1, len(best.history.commands) // 2)
        while size and time.monotonic() < until:
            start = 0
            while start < len(best.history.commands) and time.monotonic() < until:
                runs += 1
                commands = best.history.commands
                fewer = best.history.with_commands([*commands[:start], *commands[start + size :]])
                name = f"shrunk_{best.history.seed}_{runs}"
                shorter = await self._still_violated(environment, fewer, name, found.violations)
                best, start = (shorter, start) if shorter else (best, start + size)
            size //= 2
        return Violated(proof=self.proof, seed=found.history.seed, sentences=found.violations, script=best.said)

    async def _still_violated(
        self, environment: HistoryEnvironment, shorter: HistoryType, name: str, before: Sequence[str]
    ) -> Told[HistoryType] | None:
        """By a sentence of the same class."""
        if not shorter.has_work:
            return None
        classes = {sentence.partition("]")[0] for sentence in before}
        for number in range(TRIES):
            told: Told[HistoryType] = await self.tell(environment, shorter, f"{name}_{number}", _say_nothing)
            if classes & {sentence.partition("]")[0] for sentence in told.violations}:
                return told
        return None


def add_up(counts: Iterable[Counter[str]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for one in counts:
        total += one
    return dict(sorted(total.items()))
