"""Many schedules, on all cores: what was violated, by which seed, and how much was tried."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from multiprocessing import get_context

from tests.simulation.schedule import run

COMMAND = "python -m tests.simulation --seed {seed}"


@dataclass(frozen=True)
class Verdict:
    """Of one schedule. digest: of its trace; the same seed gives the same one."""

    seed: int
    violations: tuple[str, ...]
    digest: str
    seconds: float
    sends: int
    late_sends: int
    calls: int
    failures: int
    strikes: int

    @property
    def words(self) -> str:
        return f"seed {self.seed}: {'; '.join(self.violations)}\n    {COMMAND.format(seed=self.seed)}"


def judge(seed: int) -> Verdict:
    ran = run(seed)
    return Verdict(
        seed=seed,
        violations=ran.violations,
        digest=ran.trace.digest(),
        seconds=ran.seconds,
        sends=ran.sends,
        late_sends=ran.late_sends,
        calls=ran.calls,
        failures=ran.failures,
        strikes=ran.strikes,
    )


def judge_all(seeds: Iterable[int], *, workers: int | None = None) -> Iterator[Verdict]:
    """In the order in which they come; `workers` processes, all cores if not said."""
    count = workers or os.cpu_count() or 1
    if count == 1:
        yield from map(judge, seeds)
        return
    with get_context("spawn").Pool(count) as pool:
        yield from pool.imap_unordered(judge, seeds, chunksize=10)


def first_violation(seeds: Iterable[int]) -> Verdict | None:
    """Here, one after the other; the first one ends it."""
    return next((verdict for verdict in map(judge, seeds) if verdict.violations), None)
