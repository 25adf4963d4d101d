"""Many histories, some at a time; one that is violated is shrunk to the commands that it needs, and printed."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from redrive.kit.proof.commands import History
from redrive.kit.proof.history_environment import HistoryEnvironment
from redrive.kit.proof.report import Progress, bound

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
    def bound(self) -> float:
        return bound(self.count)

    def counts(self) -> dict[str, int]:
        if not self.count:
            return {}
        counts = {"histories": self.count, "commands": self.commands, **self.more_counts()}
        counts |= {f"fault: {name}": count for name, count in self.faults.items()}
        return counts | {f"answer: {name}": count for name, count in self.answers.items()}

    def more_counts(self) -> dict[str, int]:
        return {}


def seeds_of(seed: int, count: int) -> range:
    return range(seed * SEEDS_OF_A_RUN, seed * SEEDS_OF_A_RUN + count)


def jobs() -> int:
    """They wait more than they work."""
    return 3 * (os.cpu_count() or 2)


class Campaign(Generic[HistoryType, ToldType]):
    """proof: its name on the command line."""

    def __init__(self, environment: HistoryEnvironment, tell: Tell[HistoryType, ToldType], *, proof: str) -> None:
        self.environment = environment
        self._tell = tell
        self._proof = proof

    async def run(
        self,
        histories: Sequence[HistoryType],
        *,
        progress: Progress,
        say: Say | None = None,
        at_a_time: int | None = None,
        seconds: float | None = None,
    ) -> tuple[list[ToldType], list[Violated]]:
        """With `seconds`, those that were begun by then."""
        room = asyncio.Semaphore(at_a_time or jobs())
        until = None if seconds is None else time.monotonic() + seconds
        told: list[ToldType] = []

        async def one(number: int, history: HistoryType) -> None:
            async with room:
                if until is None or time.monotonic() < until:
                    told.append(await self._tell(self.environment, history, f"history_{number}", say or _say_nothing))
                    progress("histories", len(told), len(histories))

        async with asyncio.TaskGroup() as group:
            for number, history in enumerate(histories):
                group.create_task(one(number, history))
        broken = sorted((one for one in told if one.violations), key=lambda one: one.history.seed)
        return told, [await self._shrunk(one) for one in broken]

    async def _shrunk(self, found: ToldType) -> Violated:
        """Leave out commands, many at first, while it is still violated."""
        until = time.monotonic() + SHRINK_SECONDS
        best, runs = found, 0
        size = max(1, len(best.history.commands) // 2)
        while size and time.monotonic() < until:
            start = 0
            while start < len(best.history.commands) and time.monotonic() < until:
                runs += 1
                name = f"shrunk_{best.history.seed}_{runs}"
                shorter = await self._still_violated(_without(best.history, start, size), name, found.violations)
                best, start = (shorter, start) if shorter else (best, start + size)
            size //= 2
        return Violated(proof=self._proof, seed=found.history.seed, sentences=found.violations, script=best.said)

    async def _still_violated(self, shorter: HistoryType, name: str, before: Sequence[str]) -> ToldType | None:
        """By a sentence of the same class."""
        if not shorter.has_work:
            return None
        classes = {sentence.partition("]")[0] for sentence in before}
        for number in range(TRIES):
            told = await self._tell(self.environment, shorter, f"{name}_{number}", _say_nothing)
            if classes & {sentence.partition("]")[0] for sentence in told.violations}:
                return told
        return None


def _without(history: HistoryType, start: int, count: int) -> HistoryType:
    return history.with_commands([*history.commands[:start], *history.commands[start + count :]])


async def carry_out(
    campaign: Campaign[HistoryType, ToldType],
    kind: type[HistoriesType],
    histories: Sequence[HistoryType],
    **options: Any,
) -> HistoriesType:
    """options: of `Campaign.run`."""
    began = time.monotonic()
    async with campaign.environment:
        told, violated = await campaign.run(histories, **options)
    seconds = time.monotonic() - began
    return kind(seconds=seconds, server=campaign.environment.name, violated=violated, told=told)


def add_up(counts: Iterable[Counter[str]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for one in counts:
        total += one
    return dict(sorted(total.items()))


def _say_nothing(_: str) -> None:
    pass
