"""Many histories, some at a time; one that is violated is shrunk to the commands that it needs, and printed."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from redrive.prove.campaign import Progress
from redrive.prove.engine import open_place
from redrive.store.migration_files import MigrationSet
from redrive.systems import payments
from redrive.systems.payments.prove.histories import History, history
from redrive.systems.payments.prove.history_run import Tell, Told, jobs, tell
from redrive.systems.payments.prove.history_world import Ground
from redrive.systems.payments.prove.steering import GUARDS

HISTORIES: Final = 200  # at scale 1
SEEDS_OF_A_RUN: Final = 100_000
SHRINK_SECONDS: Final = 120.0
TRIES: Final = (
    2  # a shorter history that is not violated at once may be violated the next time: relays have their own pace
)


@dataclass(frozen=True, kw_only=True)
class Violated:
    """A history that broke a promise. script: the shortest that was found, with what each command answered."""

    seed: int
    sentences: Sequence[str]
    script: Sequence[str]

    def lines(self) -> Iterator[str]:
        yield f"History {self.seed}: {' '.join(self.sentences)}"
        yield f"It is repeated by: redrive prove payments --history {self.seed}"
        yield "The shortest script that was found, which redrive prove payments --script FILE repeats:"
        yield from (f"    {line}" for line in self.script)


@dataclass(frozen=True, kw_only=True)
class Histories:
    """What came of them. abilities, answers, guards, faults: how often each. told: each of them, as they ended."""

    count: int = 0
    commands: int = 0
    seconds: float = 0.0
    server: str = ""
    abilities: Mapping[str, int] = field(default_factory=dict)
    answers: Mapping[str, int] = field(default_factory=dict)
    guards: Mapping[str, int] = field(default_factory=dict)
    faults: Mapping[str, int] = field(default_factory=dict)
    violated: Sequence[Violated] = field(default_factory=list)
    told: Sequence[Told] = field(default_factory=list, repr=False)

    @property
    def bound(self) -> float:
        """With no violation in n histories the rate is below 3/n, at 95 %."""
        return 3 / max(self.count, 1)


def histories_of(seed: int, count: int) -> Sequence[History]:
    """The random histories of a run."""
    return [history(number) for number in range(seed * SEEDS_OF_A_RUN, seed * SEEDS_OF_A_RUN + count)]


def run_histories(
    histories: Sequence[History], *, progress: Progress, say: Tell | None = None, at_a_time: int | None = None
) -> Histories:
    """All of them. say: hears each line of their scripts as it happens."""
    with open_place() as place:
        return asyncio.run(_run(Ground(place, [payments_set()]), histories, progress, say, at_a_time or jobs()))


def payments_set() -> MigrationSet:
    """The tables of payments."""
    assert payments.system.migrations is not None
    return MigrationSet(payments.system.name, payments.system.migrations)


async def _run(
    ground: Ground, histories: Sequence[History], progress: Progress, say: Tell | None, at_a_time: int
) -> Histories:
    began = time.monotonic()
    room = asyncio.Semaphore(at_a_time)
    told: list[Told] = []

    async def one(number: int, history: History) -> None:
        async with room:
            told.append(await tell(ground, history, f"history_{number}", say=say or (lambda _: None)))
            progress("histories", len(told), len(histories))

    async with ground:
        async with asyncio.TaskGroup() as group:
            for number, history in enumerate(histories):
                group.create_task(one(number, history))
        broken = sorted((one for one in told if one.violations), key=lambda one: one.history.seed)
        violated = [await _shrunk(ground, one) for one in broken]
    return Histories(
        count=len(told),
        commands=sum(len(one.history.commands) for one in told),
        seconds=time.monotonic() - began,
        server=f"PostgreSQL {ground.major}, embedded",
        abilities=Counter(one.history.rail for one in told),
        answers=_sum(one.answers for one in told),
        guards={guard: sum(one.guards[guard] for one in told) for guard in GUARDS},
        faults=_sum(one.faults for one in told),
        violated=violated,
        told=told,
    )


async def _shrunk(ground: Ground, found: Told) -> Violated:
    """Leave out commands, many at first, as long as it is still violated."""
    until = time.monotonic() + SHRINK_SECONDS
    best, runs = found, 0
    size = max(1, len(best.history.commands) // 2)
    while size and time.monotonic() < until:
        start = 0
        while start < len(best.history.commands) and time.monotonic() < until:
            runs += 1
            name = f"shrunk_{best.history.seed}_{runs}"
            shorter = await _still_violated(ground, best.history.without(start, size), name, found.violations)
            best, start = (shorter, start) if shorter else (best, start + size)
        size //= 2
    return Violated(seed=found.history.seed, sentences=found.violations, script=best.said)


async def _still_violated(ground: Ground, shorter: History, name: str, before: Sequence[str]) -> Told | None:
    """In the same way: a sentence of the same class."""
    if not shorter.submits:
        return None
    classes = {sentence.partition("]")[0] for sentence in before}
    for number in range(TRIES):
        told = await tell(ground, shorter, f"{name}_{number}")
        if classes & {sentence.partition("]")[0] for sentence in told.violations}:
            return told
    return None


def _sum(counts: Iterable[Counter[str]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for one in counts:
        total += one
    return dict(sorted(total.items()))
