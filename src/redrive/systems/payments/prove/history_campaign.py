"""Many histories, some at a time; one that is violated is shrunk and printed (`redrive.prove.histories.campaign`)."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from redrive.prove.directories import open_place
from redrive.prove.histories.campaign import Campaign, Progress, Say, Violated, add_up, seeds_of
from redrive.prove.histories.environment import HistoryEnvironment
from redrive.store.migrations.files import MigrationSet
from redrive.systems import payments
from redrive.systems.payments.prove.child_processes import MODULE
from redrive.systems.payments.prove.histories import History, history
from redrive.systems.payments.prove.history_run import Told, tell
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
    with open_place() as place:
        return asyncio.run(_run(HistoryEnvironment(place, MODULE, sets=[payments_set()]), histories, progress, say))


def payments_set() -> MigrationSet:
    """The tables of payments."""
    assert payments.system.migrations is not None
    return MigrationSet(payments.system.name, payments.system.migrations)


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
        server=f"PostgreSQL {environment.major}, embedded",
        abilities=Counter(one.history.rail for one in told),
        answers=add_up(one.answers for one in told),
        guards={guard: sum(one.guards[guard] for one in told) for guard in GUARDS},
        faults=add_up(one.faults for one in told),
        violated=violated,
        told=told,
    )
