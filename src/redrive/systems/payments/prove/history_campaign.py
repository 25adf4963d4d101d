"""The random histories of `redrive prove payments` (`redrive.kit.proof.history_campaign`)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from redrive.kit.proof import history_campaign
from redrive.kit.proof.directories import open_directory
from redrive.kit.proof.history_campaign import Campaign, Say, carry_out, seeds_of
from redrive.kit.proof.history_environment import HistoryEnvironment
from redrive.kit.proof.report import Progress
from redrive.systems import payments
from redrive.systems.payments.prove.drawing import History, history
from redrive.systems.payments.prove.processes import MODULE
from redrive.systems.payments.prove.running import PaymentsTold, tell
from redrive.systems.payments.prove.steering import GUARDS

HISTORIES: Final = 200  # at scale 1


class Histories(history_campaign.Histories[PaymentsTold]):
    @property
    def abilities(self) -> Mapping[str, int]:
        return Counter(one.history.rail for one in self.told)

    @property
    def guards(self) -> Mapping[str, int]:
        return {guard: sum(one.guards[guard] for one in self.told) for guard in GUARDS}

    def more_counts(self) -> dict[str, int]:
        return {**self.abilities, **{f"guard: {name}": count for name, count in self.guards.items()}}


def histories_of(seed: int, count: int) -> Sequence[History]:
    return [history(number) for number in seeds_of(seed, count)]


def run_histories(histories: Sequence[History], *, progress: Progress, say: Say | None = None) -> Histories:
    """say: hears each line of their scripts as it happens."""
    with open_directory() as directory:
        environment = HistoryEnvironment(directory, MODULE, systems=[payments.system])
        campaign = Campaign(environment, tell, proof="payments")
        return asyncio.run(carry_out(campaign, Histories, histories, progress=progress, say=say))
