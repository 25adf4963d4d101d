"""Which faults, how often and in which order: drawn from one seed."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

MESSAGES: Final = 20_000
MESSAGES_OF_A_KEY: Final = 100
RESTARTED: Final = "broker stopped or killed, and started"
CONFIRM_CUT: Final = "connection cut between publish and confirm"
RELAY_KILLED: Final = "relay killed"
WORKER_KILLED: Final = "worker killed"
WORKER_CUT: Final = "connection of the worker cut"
CONSUMER_RELAY_KILLED: Final = "relay of the consumer killed"
PUBLISHING: Final[Mapping[str, int]] = {CONFIRM_CUT: 50, RELAY_KILLED: 10, RESTARTED: 5}
CONSUMING: Final[Mapping[str, int]] = {WORKER_KILLED: 30, WORKER_CUT: 15, CONSUMER_RELAY_KILLED: 5, RESTARTED: 5}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """messages: at least so many are committed. publishing, consuming: the faults, in their order."""

    seed: int
    messages: int
    keys: int
    publishing: Sequence[str]
    consuming: Sequence[str]

    @classmethod
    def of(cls, *, seed: int, scale: float, survives: bool) -> Self:
        """survives: the broker may be restarted."""
        chance = random.Random(f"{seed}/brokers")
        messages = max(200, round(MESSAGES * scale))
        return cls(
            seed=seed,
            messages=messages,
            keys=max(8, messages // MESSAGES_OF_A_KEY),
            publishing=_drawn(PUBLISHING, chance, scale, survives=survives),
            consuming=_drawn(CONSUMING, chance, scale, survives=survives),
        )


def _drawn(kinds: Mapping[str, int], chance: random.Random, scale: float, *, survives: bool) -> Sequence[str]:
    faults = [
        kind
        for kind, count in kinds.items()
        if survives or kind != RESTARTED
        for _ in range(max(1, round(count * scale)))
    ]
    chance.shuffle(faults)
    return faults
