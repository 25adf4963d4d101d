"""The random histories of `redrive prove engine`: many of them, counted; one that is violated is shrunk and printed."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from redrive.kit.proof.directories import open_directory
from redrive.kit.proof.history_campaign import Campaign, Say, Violated, add_up, seeds_of
from redrive.kit.proof.history_environment import HistoryEnvironment
from redrive.kit.proof.report import Progress
from redrive.prove import config
from redrive.prove.histories.drawing import History, history
from redrive.prove.histories.judging import Delays, percentile
from redrive.prove.histories.processes import MODULE
from redrive.prove.histories.running import LIMITS, Told, tell

HISTORIES: Final = 100  # at scale 1, as the help of the command says


@dataclass(frozen=True, kw_only=True)
class Histories:
    """What came of them. answers, faults: how often each. told: each of them, as they ended. limits: of relays."""

    count: int = 0
    commands: int = 0
    seconds: float = 0.0
    server: str = ""
    answers: Mapping[str, int] = field(default_factory=dict)
    faults: Mapping[str, int] = field(default_factory=dict)
    violated: Sequence[Violated] = ()
    told: Sequence[Told] = field(default=(), repr=False)
    limits: Mapping[str, float] = field(default_factory=lambda: dict(LIMITS))

    @property
    def delays(self) -> Delays:
        """Of the healthy destination, over all histories."""
        return Delays(
            calm=[delay for one in self.told for delay in one.delays.calm],
            every=[delay for one in self.told for delay in one.delays.every],
        )

    @property
    def bound(self) -> float:
        """With no violation in n histories the rate is below 3/n, at 95 %."""
        return 3 / max(self.count, 1)

    def counts(self) -> dict[str, int]:
        if not self.count:
            return {}
        counts = {"histories": self.count, "commands": self.commands}
        counts |= {f"fault: {name}": count for name, count in self.faults.items()}
        return counts | {f"answer: {name}": count for name, count in self.answers.items()}

    def figures(self) -> dict[str, float]:
        """How long messages of the healthy destination waited, in seconds."""
        if not self.count:
            return {}
        delays = self.delays
        return {
            "without a fault beside it, p99": percentile(delays.calm, 0.99),
            "without a fault beside it, longest": max(delays.calm, default=0.0),
            "with every fault, p99": percentile(delays.every, 0.99),
            "with every fault, longest": max(delays.every, default=0.0),
        }

    def lines(self) -> Iterator[str]:
        """Each history in one line: its delays."""
        for one in sorted(self.told, key=lambda one: one.history.seed):
            calm, every = one.delays.calm, one.delays.every
            yield (
                f"history {one.history.seed}: {len(one.history.commands)} commands, {one.seconds:.0f} s, {len(every)}"
                f" to the healthy destination: longest wait {max(calm, default=0.0):.2f} s (p99"
                f" {percentile(calm, 0.99):.2f} s), beside faults {max(every, default=0.0):.2f} s (p99"
                f" {percentile(every, 0.99):.2f} s)"
            )


def histories_of(seed: int, count: int) -> Sequence[History]:
    """The random histories of a run."""
    return [history(number) for number in seeds_of(seed, count)]


def run_histories(
    histories: Sequence[History],
    *,
    progress: Progress,
    say: Say | None = None,
    seconds: float | None = None,
    at_a_time: int | None = None,
) -> Histories:
    """All of them, or with `seconds` those that were begun by then. say: hears each line of their scripts."""
    with open_directory() as place:
        environment = HistoryEnvironment(place, MODULE, tables=config.TABLES)
        return asyncio.run(_run(environment, histories, progress, say, seconds, at_a_time or os.cpu_count() or 2))


async def _run(
    environment: HistoryEnvironment,
    histories: Sequence[History],
    progress: Progress,
    say: Say | None,
    seconds: float | None,
    at_a_time: int,
) -> Histories:
    began = time.monotonic()
    async with environment:
        campaign = Campaign(environment, tell, proof="engine")
        told, violated = await campaign.run(
            histories, progress=progress, say=say, seconds=seconds, at_a_time=at_a_time
        )  # fmt: skip
    return Histories(
        count=len(told),
        commands=sum(len(one.history.commands) for one in told),
        seconds=time.monotonic() - began,
        server=environment.name,
        answers=add_up(one.answers for one in told),
        faults=add_up(one.faults for one in told),
        violated=violated,
        told=told,
    )
