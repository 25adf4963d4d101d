"""What goes wrong at the simulated Case API: a list that is used up, then a share of the requests by a seed.

The drawn faults depend on the seed, the attachment key and how often this key was requested, and not on the order in
which requests arrive: the same seed gives the same faults however many relays run.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum


class Fault(StrEnum):
    """With lost, gateway, garbage, attached_500 and hang_after the file is attached, and the caller cannot know. Slow
    answers late. With the others nothing is attached.
    """

    LOST = "lost"
    GATEWAY = "gateway"
    GARBAGE = "garbage"
    ATTACHED_500 = "attached_500"
    HANG_AFTER = "hang_after"
    HANG_BEFORE = "hang_before"
    SLOW = "slow"
    RESET = "reset"
    UNAVAILABLE = "unavailable"
    THROTTLED = "throttled"
    INTERNAL = "internal"
    UNAUTHORIZED = "unauthorized"
    CORRUPTED = "corrupted"


@dataclass(kw_only=True)
class Faults:
    """first: what the first requests meet, in order; an empty text is no fault. share: of later ones, by fault, 0 to 1.

    only_first: a key meets a drawn fault at its first request only.
    """

    first: Sequence[str] = ()
    share: Mapping[str, float] = field(default_factory=dict)
    seed: int = 0
    only_first: bool = False

    def __post_init__(self) -> None:
        self._left = list(self.first)
        self._requests: Counter[str] = Counter()

    def next(self, key: str) -> Fault | None:
        self._requests[key] += 1
        if self._left:
            given = self._left.pop(0)
            return Fault(given) if given else None
        if self.only_first and self._requests[key] > 1:
            return None
        return self._drawn(random.Random(f"{self.seed}/{key}/{self._requests[key]}").random())

    def _drawn(self, drawn: float) -> Fault | None:
        for name, share in self.share.items():
            if drawn < share:
                return Fault(name)
            drawn -= share
        return None
