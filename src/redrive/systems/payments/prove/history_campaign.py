"""The random histories of `redrive prove payments` (`redrive.kit.proof.history_campaign`)."""

import os
from collections import Counter
from collections.abc import Mapping
from typing import Final

from redrive.kit.proof import history_campaign
from redrive.kit.proof.history_campaign import Campaign
from redrive.systems import payments
from redrive.systems.payments.prove.drawing import History, history, read_script
from redrive.systems.payments.prove.processes import MODULE
from redrive.systems.payments.prove.running import PaymentsTold, tell
from redrive.systems.payments.prove.steering import GUARDS

HISTORIES: Final = 200  # at scale 1


class Histories(history_campaign.Histories[PaymentsTold]):
    @property
    def guards(self) -> Mapping[str, int]:
        return {guard: sum(one.guards[guard] for one in self.told) for guard in GUARDS}

    def more_counts(self) -> dict[str, int]:
        abilities = Counter(one.history.rail for one in self.told)
        return {**abilities, **{f"guard: {name}": count for name, count in self.guards.items()}}


CAMPAIGN: Final = Campaign[History, Histories](
    proof="payments",
    module=MODULE,
    draw=history,
    read=read_script,
    tell=tell,
    kind=Histories,
    at_a_time=3 * (os.cpu_count() or 2),  # they wait more than they work
    systems=[payments.system],
)
