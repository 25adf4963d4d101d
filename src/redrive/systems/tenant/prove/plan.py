"""Tenants, events, and what goes wrong, all drawn from one seed. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

EVENTS: Final = 5000  # at scale 1
TENANTS: Final = 40
PRODUCERS: Final = 4
RELAYS: Final = 3
RELAY_KILLED, PRODUCER_KILLED, RESTARTED = "relays killed", "producers killed", "PostgreSQL stopped at once"
FAULTS: Final[Mapping[str, int]] = {RELAY_KILLED: 12, PRODUCER_KILLED: 12, RESTARTED: 3}

HOSTILE: Final = "hostile"
HOSTILE_SHARE: Final = 0.2
UNWANTED_SHARE: Final = 0.06  # rolled back by every producer that adds them
REFUSED_SHARE: Final = 0.1  # of the hostile tenant's events: its endpoint never takes them
ORDERED_SHARE: Final = 0.3
TWICE_SHARE: Final = 0.35  # added by two or three producers at about the same time
AGAIN_SHARE: Final = 0.15  # and once more by the same producer, later
ROLLED_BACK_SHARE: Final = 0.1  # first rolled back, then repeated
TOMORROW: Final = 3  # events a tenant that are due tomorrow, so that the snapshot has something to count


@dataclass(frozen=True, slots=True)
class Event:
    """One event as the application sees it, however often it is added. name: tells it apart within its tenant.

    order_by: with it, `version` is its place. unwanted: each transaction that adds it is rolled back. refused: its
    endpoint never takes it.
    """

    tenant: str
    entity: str
    version: int
    order_by: str | None = None
    unwanted: bool = False
    refused: bool = False

    @property
    def name(self) -> str:
        return f"{self.entity}/{self.version}"


@dataclass(frozen=True, slots=True)
class Step:
    """One transaction of a producer. verb: add, try_add or insert (into the view)."""

    event: Event
    verb: str
    commits: bool

    def printed(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """steps: of each producer, in their order."""

    seed: int
    tenants: Sequence[str]
    events: Sequence[Event]
    steps: Sequence[Sequence[Step]]
    faults: Sequence[str]

    @classmethod
    def of(cls, *, seed: int, scale: float, own_server: bool) -> Plan:
        """own_server: PostgreSQL may be restarted."""
        chance = random.Random(f"{seed}/tenant")
        count = max(150, round(EVENTS * scale))
        tenants = [HOSTILE, *(f"tenant-{number:02}" for number in range(1, max(8, round(TENANTS * min(1, scale)))))]
        events = list(_events(chance, tenants, count))
        return cls(
            seed=seed,
            tenants=tenants,
            events=events,
            steps=_steps(chance, events),
            faults=_faults(chance, scale, own_server=own_server),
        )


def _events(chance: random.Random, tenants: Sequence[str], count: int) -> Iterator[Event]:
    versions: dict[tuple[str, str], int] = {}
    for number in range(count):
        tenant = HOSTILE if chance.random() < HOSTILE_SHARE else chance.choice(tenants[1:])
        if chance.random() < ORDERED_SHARE:
            lane = f"lane-{chance.randrange(3)}"
            version = versions[tenant, lane] = versions.get((tenant, lane), 0) + 1
            yield Event(tenant, lane, version, order_by=lane)
            continue
        unwanted = chance.random() < UNWANTED_SHARE
        refused = tenant == HOSTILE and not unwanted and chance.random() < REFUSED_SHARE
        # The same entities in every tenant, so that a key without the tenant would show.
        yield Event(tenant, f"entity-{number // len(tenants)}-{number}", 1, unwanted=unwanted, refused=refused)


def _steps(chance: random.Random, events: Sequence[Event]) -> list[list[Step]]:
    """An ordered event has one producer, so that the order of its journal is the order of the commits."""
    steps: list[list[Step]] = [[] for _ in range(PRODUCERS)]
    for event in events:
        if event.order_by is not None:
            producers = [hash_of(event.tenant, event.entity) % PRODUCERS]
        else:
            several = chance.randint(2, 3) if chance.random() < TWICE_SHARE else 1
            producers = chance.sample(range(PRODUCERS), several)
        for producer in producers:
            steps[producer] += _transactions(chance, event)
            if chance.random() < AGAIN_SHARE:
                earlier = chance.choice(steps[producer]).event
                steps[producer] += _transactions(chance, earlier)
    return steps


def _transactions(chance: random.Random, event: Event) -> list[Step]:
    verbs = ["add", "try_add", "insert"]
    committed = [] if event.unwanted else [Step(event, chance.choice(verbs), commits=True)]
    is_rolled_back = event.unwanted or chance.random() < ROLLED_BACK_SHARE
    return [*([Step(event, chance.choice(verbs), commits=False)] if is_rolled_back else []), *committed]


def _faults(chance: random.Random, scale: float, *, own_server: bool) -> list[str]:
    found = [kind for kind, count in FAULTS.items() for _ in range(max(1, round(count * scale)))]
    chance.shuffle(found)
    return [kind for kind in found if own_server or kind != RESTARTED]


def hash_of(*words: str) -> int:
    """The same in every process."""
    return random.Random("/".join(words)).getrandbits(32)
