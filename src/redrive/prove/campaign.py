"""Faults of every kind at once against relays at work; each kind in a thread of its own, drawn from one seed.

`Campaign.run` returns when all faults are injected. What it kills it starts again; what ends unasked is a
violation. The checker judges messages.
"""

import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final, Self

from redrive.kit.proof import failpoints
from redrive.kit.proof.failpoints import Act
from redrive.kit.proof.processes import Process
from redrive.kit.proof.report import Progress
from redrive.prove import config
from redrive.prove.environment import Environment
from redrive.prove.failpoint_scenarios import Strikes
from redrive.prove.producer import Order
from redrive.prove.script import Script

STEADY: Final = 3
PRODUCERS: Final = 2
PRODUCER_PAUSE_SECONDS: Final = 0.08
# For what has limits, more at once than they allow, and on average less.
BURST: Final = 80
BURST_PAUSE_SECONDS: Final = 8.0
KILLED: Final = -signal.SIGKILL


@dataclass(frozen=True, kw_only=True)
class Plan:
    """kinds: fault to how often. strikes: how often each step boundary, by act."""

    seed: int
    kinds: Mapping[str, int]
    strikes: Sequence[tuple[str, Act]]

    @classmethod
    def of(cls, *, seed: int, scale: float, own_server: bool) -> Self:
        chance = random.Random(seed)
        kinds = {kind: max(1, round(count * scale)) for kind, (count, _, _) in FAULTS.items()}
        if not own_server:
            kinds.pop("PostgreSQL stopped at once and started")
        points = failpoints.boundaries()
        strikes: list[tuple[str, Act]] = [(point, "kill") for point in points for _ in range(max(1, round(3 * scale)))]
        strikes += [(point, "stop") for point in ZOMBIES for _ in range(max(2, round(5 * scale)))]
        chance.shuffle(strikes)
        return cls(seed=seed, kinds=kinds, strikes=strikes)


# Frozen here, a process wakes up as a zombie: with an outcome that must be refused, or about to send.
ZOMBIES: Final = ("send.stop", "settle.start", "send.start")


@dataclass
class Tally:
    """What was injected, and which processes ended without a fault."""

    faults: Counter[str] = field(default_factory=Counter)
    points: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(failpoints.boundaries(), 0)))
    complaints: list[str] = field(default_factory=list)


@dataclass
class Campaign:
    """restart: stops PostgreSQL at once and starts it; cut: loses one reply."""

    environment: Environment
    plan: Plan
    cut: Callable[[], bool]
    restart: Callable[[], None] | None
    progress: Progress
    tally: Tally = field(default_factory=Tally)

    def __post_init__(self) -> None:
        self._strikes = Strikes(self.environment)
        self._script = Script(seed=self.plan.seed, limited=tuple(self.environment.config.limited))
        self._steady: list[Process] = []
        self._busy = [threading.Lock() for _ in range(STEADY)]
        self._producers: list[Process] = []
        self._runs = 0
        self._tallying = threading.Lock()

    def run(self) -> None:
        self._observer = self.environment.observe(self._script)
        self._steady = [self._start_steady(number) for number in range(STEADY)]
        self._producers = [*map(self._start_producer, range(PRODUCERS)), self._start_bursts()]
        with ThreadPoolExecutor(config.STRIKES_AT_ONCE + len(self.plan.kinds)) as pool:
            jobs = [pool.submit(self._inject, kind, count) for kind, count in self.plan.kinds.items()]
            jobs += [pool.submit(self._strike, event, act) for event, act in self.plan.strikes]
            _wait_for_all(jobs, self.environment)

    def finish(self, *, seconds: float) -> float:
        """No more faults and messages: seconds until everything had ended by itself. Given up when no attempt has
        ended for `seconds`: a busy machine is slow, not stuck."""
        began = time.monotonic()
        for producer in self._producers:
            producer.end()
        last = [self.environment.relay(f"last-{number}") for number in range(2)]
        self.environment.settle_down(seconds=seconds)
        took = time.monotonic() - began
        for relay in (*self._steady, *last):
            self._stop(relay)
        return took

    def _stop(self, relay: Process) -> None:
        relay.signal(signal.SIGTERM)
        self.environment.wait(lambda: relay.code is not None, seconds=20.0)
        if relay.code != 0:
            self._complain(relay)

    # what runs all the time

    def _start_steady(self, number: int) -> Process:
        return self.environment.relay(f"steady-{number}", only=[*config.DESTINATIONS, *self.environment.config.limited])

    def _start_producer(self, number: int) -> Process:
        """Until it is killed; started again it has another name, and so other keys."""
        self._runs += 1
        order = Order(
            name=f"producer-{number}-{self._runs}",
            count=sys.maxsize,
            destinations=list(config.DESTINATIONS),
            seed=self.plan.seed,
            pause_seconds=PRODUCER_PAUSE_SECONDS,
            keys=list(config.ORDERING_KEYS),
            unordered=[config.HOLD],
        )
        return self.environment.produce(order)

    def _start_bursts(self) -> Process:
        order = Order(
            name="bursts",
            count=sys.maxsize,
            destinations=list(self.environment.config.limited),
            plain=True,
            burst=BURST,
            pause_seconds=BURST_PAUSE_SECONDS,
            keys=list(config.ORDERING_KEYS),
        )
        return self.environment.produce(order)

    def _complain(self, relay: Process) -> None:
        with self._tallying:
            self.tally.complaints.append(f"Relay {relay.name} (pid {relay.pid}) {relay.ending}")

    # faults

    def _strike(self, event: str, act: Act) -> None:
        met = self._strikes.strike(event, act=act)
        with self._tallying:
            kind = "relay killed at a step boundary" if act == "kill" else "relay frozen at a step boundary"
            self.tally.faults[kind] += met
            if act == "kill":
                self.tally.points[event] += met
            self.progress("step boundaries", sum(self.tally.points.values()), len(self.plan.strikes))

    def _inject(self, kind: str, count: int) -> None:
        chance = random.Random(f"{self.plan.seed}/{kind}")
        _, pause, inject = FAULTS[kind]
        for done in range(1, count + 1):
            self._pause(chance.uniform(*pause))
            happened = inject(self, chance)
            with self._tallying:
                self.tally.faults[kind] += happened
            self.progress(kind, done, count)

    def _pause(self, seconds: float) -> None:
        self.environment.wait(lambda: False, seconds=seconds)

    def _kill_relay(self, chance: random.Random) -> bool:
        number = chance.randrange(STEADY)
        with self._busy[number]:
            relay = self._steady[number]
            relay.signal(signal.SIGKILL)
            if relay.wait(10.0) != KILLED:
                self._complain(relay)
            self._steady[number] = self._start_steady(number)
        return True

    def _freeze_relay(self, chance: random.Random) -> bool:
        number = chance.randrange(STEADY)
        with self._busy[number]:
            relay = self._steady[number]
            relay.signal(signal.SIGSTOP)
            try:
                self._pause(chance.uniform(1.2, 2.5) * self.environment.config.lease_seconds)
            finally:
                relay.signal(signal.SIGCONT)
        return True

    def _restart_server(self, _: random.Random) -> bool:
        assert self.restart is not None
        self.restart()
        return True

    def _lose_reply(self, _: random.Random) -> bool:
        return self.cut()

    def _terminate_backend(self, _: random.Random) -> bool:
        terminated = self.environment.value(
            "SELECT pg_terminate_backend(pid) FROM (SELECT pid FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name LIKE 'redrive%%' ORDER BY random() LIMIT 1) one"
        )
        return bool(terminated)

    def _kill_producer(self, chance: random.Random) -> bool:
        number = chance.randrange(PRODUCERS)
        producer = self._producers[number]
        alive = producer.code is None
        producer.signal(signal.SIGKILL)
        producer.wait(10.0)
        self._producers[number] = self._start_producer(number)
        return alive

    def _kill_observer(self, _: random.Random) -> bool:
        self._observer.signal(signal.SIGKILL)
        self._observer.wait(10.0)
        self._observer = self.environment.observe(self._script)
        return True


PAUSE: Final = (0.3, 1.5)
# Each kind: how often at scale 1, the seconds before it, and how it is injected.
FAULTS: Final[Mapping[str, tuple[int, tuple[float, float], Callable[[Campaign, random.Random], bool]]]] = {
    "relay killed at random": (50, PAUSE, Campaign._kill_relay),
    "relay frozen beyond its lease": (10, (1.0, 3.0), Campaign._freeze_relay),
    "PostgreSQL stopped at once and started": (10, (3.0, 8.0), Campaign._restart_server),
    "backend terminated": (30, PAUSE, Campaign._terminate_backend),
    "reply of PostgreSQL lost": (50, PAUSE, Campaign._lose_reply),
    "producer killed": (10, (2.0, 5.0), Campaign._kill_producer),
    "destination killed": (5, (3.0, 8.0), Campaign._kill_observer),
}


def _wait_for_all(jobs: Sequence[Future[Any]], environment: Environment) -> None:
    """The first failure ends the rest at once."""
    try:
        for job in jobs:
            job.result()
    except BaseException:
        for job in jobs:
            job.cancel()
        environment.end()
        raise
