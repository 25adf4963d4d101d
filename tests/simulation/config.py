"""What one schedule is made of, drawn from its seed.

Every seed switches a random subset of the faults on, and draws how often each comes: a fault that is always there hides
what only happens without it. Times are short, so that a schedule sees many leases, and stand in every relation to each
other: an effect may come long after the reaper, a lookup may take longer than the effect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, Literal

from redrive.app import Destination
from redrive.policy import Backoff, Breaker, Policy, Rules
from redrive.ports import Record, Transport
from redrive.relay.dispatching.deadlines import ABANDON_SECONDS
from redrive.settings import RelayLimits

Fault = Literal[
    "killed",
    "stopped",
    "suspended",
    "asked_to_stop",
    "fails_before_commit",
    "fails_after_commit",
    "slow_store",
    "outage",
    "paused",
    "cancelled",
    "desk",
    "expires",
    "line_lost",
    "bugs",
    "deaf",
    "record_fails",
]
FAULTS: Final[tuple[Fault, ...]] = Fault.__args__  # type: ignore[attr-defined]  # a Literal has them

HINDRANCES: Final[frozenset[Fault]] = frozenset(
    {
        "stopped",
        "suspended",
        "fails_before_commit",
        "fails_after_commit",
        "slow_store",
        "outage",
        "record_fails",
        "deaf",
    }
)

PLAIN: Final = "plain"  # cannot be asked: sent again when in doubt
ASKED: Final = "asked"  # is asked first
HELD: Final = "held"  # money that cannot be asked: one attempt in doubt, then a person
RECORDED: Final = "recorded"  # is asked first, and records its outcomes
NAMES: Final = (PLAIN, ASKED, HELD, RECORDED)
NEVER_TWICE: Final = frozenset({ASKED, HELD, RECORDED})
ANSWERS: Final = 11
DEAF_SECONDS_MAX: Final = 2 * ABANDON_SECONDS  # how long a handler may go on that was told to end


@dataclass(frozen=True, kw_only=True)
class Config:
    """faults: those that are on, with their share of what they may befall. names: the destinations that there are.

    effect_seconds_max: from the first byte to the effect, at most; destinations are asked only after that.
    answers: how likely each of the answers of `rail.SCRIPTS` is, beside a plain delivery.
    strikes, messages: how many there are before everything calms down, `calm_at` in seconds.
    """

    seed: int
    faults: Mapping[Fault, float]
    names: Sequence[str]
    concurrency: int
    relays: int
    messages: int
    keys: int
    strikes: int
    calm_at: float
    effect_seconds_max: float
    timeout_seconds: float
    latency_seconds: float
    answers: tuple[int, ...]
    listens: bool
    global_concurrency: int | None
    rate: float | None
    breaker: Breaker | None
    limits: RelayLimits
    policy: Policy

    def random(self, of: str) -> Random:
        """A source of randomness of its own for each part, so that one part's draws do not move another's."""
        return Random(f"{self.seed}/{of}")

    def share(self, fault: Fault) -> float:
        return self.faults.get(fault, 0.0)

    @property
    def stops_in_time(self) -> bool:
        """Nothing keeps a relay that is asked to stop from writing down all that it has within its seconds."""
        return not self.faults.keys() & HINDRANCES

    @property
    def quiet_within_seconds(self) -> float:
        """From calm on: a duty left by the dead is taken up, leases run out, what is in doubt may be asked about,
        what came back goes through one by one, and the deaf end at last."""
        upkeep = 10 + 5 * self.limits.lease_seconds + 2 * self.limits.reap_every_seconds + 5
        one_by_one = self.messages * 2 + 10  # as slowly as after a breaker
        return upkeep + self.effect_seconds_max * 2 + one_by_one + DEAF_SECONDS_MAX

    def destination(self, name: str, transport: Transport, record: Record | None) -> Destination:
        asked = name in (ASKED, RECORDED)
        rules = Rules(
            policy=self.policy,
            in_doubt="lookup" if asked else "hold" if name == HELD else "resend",
            lookup_after_seconds=self.effect_seconds_max if asked else 0.0,
            money=name == HELD,
            on_dead="continue" if name == PLAIN else "halt",
        )
        return Destination(
            name=name,
            transport=transport,
            rules=rules,
            concurrency=self.concurrency,
            timeout_seconds=self.timeout_seconds,
            global_concurrency=self.global_concurrency,
            rate=self.rate,
            breaker=self.breaker,
            record=record,
        )


_BREAKER: Final = Breaker(failures=2, window=5, cool_off_seconds=0.3, cool_off_max_seconds=1.0)


def draw(seed: int) -> Config:
    random = Random(f"{seed}/terms")
    share = random.choice((0.3, 0.5, 0.8))
    faults = {fault: random.choice((0.02, 0.1, 0.3)) for fault in FAULTS if random.random() < share}
    lease_seconds = random.choice((1.0, 1.5, 3.0))
    effect_seconds_max = random.choice((0.1, 1.0, 4.0))
    return Config(
        seed=seed,
        faults=faults,
        names=random.sample(NAMES, random.choice((1, 2, 2, 3))),
        concurrency=random.choice((1, 3, 8)),
        relays=random.choice((2, 2, 3)),
        messages=random.randint(4, 20),
        keys=random.randint(1, 4),
        strikes=random.randint(0, random.choice((10, 20, 60))),
        calm_at=random.uniform(1.0, 5.0) + random.choice((1.5, 4.0)) * effect_seconds_max,
        effect_seconds_max=effect_seconds_max,
        answers=tuple(random.choice((0, 1, 4)) for _ in range(ANSWERS)),
        timeout_seconds=random.choice((0.2, 0.6, 2.0)),
        listens=random.random() < 0.5,
        global_concurrency=random.choice((None, None, None, 1, 2)),
        rate=random.choice((None, None, None, 5.0)),
        breaker=random.choice((None, None, _BREAKER)),
        latency_seconds=random.choice((0.001, 0.02, 0.1)),
        limits=RelayLimits(
            lease_seconds=lease_seconds,
            reap_every_seconds=random.choice((0.3, 1.0)),
            concurrency=random.choice((1, 3, 10)),
            claim_max=random.choice((1, 4, 20)),
            poll_seconds=random.choice((0.3, 1.0)),
            horizon_seconds=random.choice((0.0, 0.5)),
            record_timeout_seconds=0.5,
            stop_seconds=random.choice((0.0, 1.0)),
            heartbeat_seconds=random.choice((0.3, min(0.8, lease_seconds / 3))),
        ),
        policy=Policy(
            attempts=4,
            backoff=Backoff(initial_seconds=0.05, multiplier=3, max_seconds=1.0),
            lookups=6,
            lookup_backoff=Backoff(initial_seconds=0.1, multiplier=2, max_seconds=1.0),
            crashes=3,
        ),
    )
