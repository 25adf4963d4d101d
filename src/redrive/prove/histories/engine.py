"""The random histories of `redrive prove engine`: many of them, counted; one that is violated is shrunk and printed."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from redrive.kit.proof import history_campaign
from redrive.kit.proof.history_campaign import Campaign
from redrive.prove import config
from redrive.prove.histories.drawing import History, history, read_script
from redrive.prove.histories.judging import Delays, percentile
from redrive.prove.histories.processes import MODULE
from redrive.prove.histories.running import LIMITS, EngineTold, tell

HISTORIES: Final = 100  # at scale 1, as the help of the command says


@dataclass(frozen=True, kw_only=True)
class Histories(history_campaign.Histories[EngineTold]):
    """limits: of relays."""

    limits: Mapping[str, float] = field(default_factory=lambda: dict(LIMITS))

    @property
    def delays(self) -> Delays:
        """Of the healthy destination, over all histories."""
        return Delays(
            calm=[delay for one in self.told for delay in one.delays.calm],
            every=[delay for one in self.told for delay in one.delays.every],
        )

    def figures(self) -> dict[str, float]:
        """Waits of messages of the healthy destination, in seconds."""
        if not self.count:
            return {}
        waits = {"without a fault beside it": self.delays.calm, "with every fault": self.delays.every}
        return {
            f"{what}, {which}": seconds
            for what, delays in waits.items()
            for which, seconds in (("p99", percentile(delays, 0.99)), ("longest", max(delays, default=0.0)))
        }

    def lines(self) -> Iterator[str]:
        """The delays of each history."""
        for one in sorted(self.told, key=lambda one: one.history.seed):
            calm, every = one.delays.calm, one.delays.every
            yield (
                f"history {one.history.seed}: {len(one.history.commands)} commands, {one.seconds:.0f} s, {len(every)}"
                f" to the healthy destination: longest wait {max(calm, default=0.0):.2f} s (p99"
                f" {percentile(calm, 0.99):.2f} s), beside faults {max(every, default=0.0):.2f} s (p99"
                f" {percentile(every, 0.99):.2f} s)"
            )


CAMPAIGN: Final = Campaign[History, Histories](
    proof="engine",
    module=MODULE,
    draw=history,
    read=read_script,
    tell=tell,
    kind=Histories,
    at_a_time=os.cpu_count() or 2,
    tables=config.TABLES,
)
