"""Many histories, some at a time; one that is violated is shrunk and printed (`redrive.kit.proof.history_campaign`)."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from redrive.kit.proof.directories import open_directory
from redrive.kit.proof.history_campaign import Campaign, Say, Violated, add_up, seeds_of
from redrive.kit.proof.history_environment import HistoryEnvironment
from redrive.kit.proof.report import Progress
from redrive.systems import payments
from redrive.systems.payments.prove.drawing import History, history
from redrive.systems.payments.prove.processes import MODULE
from redrive.systems.payments.prove.running import Told, tell
from redrive.systems.payments.prove.steering import GUARDS

HISTORIES: Final = 200  # at scale 1


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
    return [history(number) for number in seeds_of(seed, count)]


def run_histories(histories: Sequence[History], *, progress: Progress, say: Say | None = None) -> Histories:
    """All of them. say: hears each line of their scripts as it happens."""
    with open_directory() as place:
        return asyncio.run(_run(HistoryEnvironment(place, MODULE, systems=[payments.system]), histories, progress, say))


async def _run(
    environment: HistoryEnvironment, histories: Sequence[History], progress: Progress, say: Say | None
) -> Histories:
    began = time.monotonic()
    async with environment:
        told, violated = await Campaign(environment, tell, proof="payments").run(histories, progress=progress, say=say)
    return Histories(
        count=len(told),
        commands=sum(len(one.history.commands) for one in told),
        seconds=time.monotonic() - began,
        server=environment.name,
        abilities=Counter(one.history.rail for one in told),
        answers=add_up(one.answers for one in told),
        guards={guard: sum(one.guards[guard] for one in told) for guard in GUARDS},
        faults=add_up(one.faults for one in told),
        violated=violated,
        told=told,
    )
