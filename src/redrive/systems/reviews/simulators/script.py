"""What goes wrong at a simulated provider or mail server: a list of faults that is used up, then a rate by a seed."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum


class Fault(StrEnum):
    """accepted_*: the notification is sent, and the caller cannot know. The others: nothing is sent."""

    ACCEPTED_LOST = "accepted_lost"
    ACCEPTED_502 = "accepted_502"
    UNAVAILABLE = "unavailable"
    INTERNAL = "internal"
    THROTTLED = "throttled"
    REFUSED = "refused"
    RESET = "reset"


@dataclass(kw_only=True)
class Script:
    """first: what the first requests meet, in order; an empty text is no fault. share: of later ones, by fault, 0 to 1.
    seed: draws the same faults again.
    """

    first: Sequence[str] = ()
    share: Mapping[str, float] = field(default_factory=dict)
    seed: int = 0

    def __post_init__(self) -> None:
        self._left = list(self.first)
        self._random = random.Random(self.seed)

    def next(self) -> Fault | None:
        if self._left:
            given = self._left.pop(0)
            return Fault(given) if given else None
        drawn = self._random.random()
        for name, share in self.share.items():
            if drawn < share:
                return Fault(name)
            drawn -= share
        return None
