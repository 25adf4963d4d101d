"""One strike: a relay that meets its failpoint, and what has to be true around it so that it does.

Every relay meets a boundary such as `claim.stop`; others need a message in doubt, a suspect, a stop or a bug:
`RECIPES`.
"""

import contextlib
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from redrive.kit.proof.failpoints import Act, Failpoint
from redrive.kit.proof.processes import Process, state_of
from redrive.prove import config
from redrive.prove.app import BUG_VARIABLE
from redrive.prove.environment import Environment
from redrive.prove.producer import Order

END_SECONDS = 15.0
REAPED_SECONDS = 20.0  # a lease, and the time for which a killed reaper keeps its duty
BEGIN_SECONDS = 30.0
DUE_SECONDS = 0.2
LONGER_TRIES = (2, 4, 8)  # times as long


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """kind: of the destination of the struck relay. messages: enqueued for it. stops: SIGTERM leads there.
    suspects: a relay is killed before, so that there are some. asks: an operator asks about what was parked. duty:
    all duties stay due until it has begun. nth: which time. tries: until it is met, each of so many seconds at
    most."""

    kind: str = "lookup"
    messages: int = 8
    nth: int = 1
    stops: bool = False
    suspects: bool = False
    duty: bool = False
    asks: bool = False
    tries: int = 3
    seconds: float = 15.0
    limits: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


_ONE_SLOT: Final = {"concurrency": 1}
_RESENT: Final = Recipe(kind="resend")
# A relay asks for a duty when it begins. Another may be faster, and then it is over for a while: again with a new one.
_SELDOM: Final = Recipe(messages=0, duty=True, tries=8, seconds=2.0)
_LATER_DUTY: Final = Recipe(messages=0, duty=True, nth=3, tries=8, seconds=6.0)
_SUSPECTS: Final = Recipe(messages=4, suspects=True)
# Many are claimed and wait behind one slot: long enough to be renewed, and to be asked about before they begin.
_WAITING: Final = Recipe(messages=70, limits={**_ONE_SLOT, "claim_max": 60, "horizon_seconds": 5.0}, tries=6)
RECIPES: Final[Mapping[str, Recipe]] = {
    "lookup": Recipe(messages=40),
    **dict.fromkeys(["fence", "record", "commit", "settle_one"], Recipe(kind="record")),
    "witness": Recipe(kind="money"),  # only relays that send money are asked what they remember
    "is_leased": Recipe(kind="complete"),
    "announce_idle": Recipe(kind="complete", messages=1),  # where others have left little to do
    "claim_suspect": _SUSPECTS,
    **dict.fromkeys(["expire", "make_partitions", "forget_relays", "forget_inbox", "mend_lanes"], _SELDOM),
    **dict.fromkeys(["fold_failures", "run_replay", "vacuum", "retire"], _SELDOM),
    "answer_request": Recipe(kind="refused", messages=1, asks=True),
    "hand_back": Recipe(messages=40, stops=True, limits=_ONE_SLOT, tries=8),
    "deregister": Recipe(stops=True),
    "renew": _WAITING,
    "check_claims": _WAITING,
    "pause": Recipe(kind="bug", messages=16, environment={BUG_VARIABLE: "1"}),
    "pause_until": Recipe(kind="rest"),
    "open_breaker": Recipe(kind="down"),
    "close_breaker": Recipe(kind="down"),
    "book_key": Recipe(kind="keyed"),
    "probe_key": Recipe(kind="keyed"),
    # Ahead of the others, who look less often; one that was killed there before keeps its place for ten seconds.
    "reap": Recipe(messages=0, limits={"reap_every_seconds": 0.1}, seconds=20.0),
    # The first is often the reaper's, whose place is then kept for ten seconds: take a later one.
    "begin_duty": _LATER_DUTY,
    "duty": _LATER_DUTY,
    "end_duty": _LATER_DUTY,
}


class Strikes:
    """At most `STRIKES_AT_ONCE` at once, each in a lane with destinations of its own."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._count = 0
        self._counting = threading.Lock()
        self._lanes: queue.Queue[str] = queue.Queue()
        for lane in config.STRUCK:
            self._lanes.put(lane)

    def strike(self, event: str, *, act: Act = "kill") -> bool:
        """Whether the boundary was met within a few tries."""
        recipe = RECIPES.get(event.partition(".")[0], Recipe() if act == "kill" else _RESENT)
        lane = self._lanes.get()
        try:
            destination = f"{lane}-{recipe.kind}"
            return any(self._once(event, act, one, destination) for one in _tries(recipe))
        finally:
            self._lanes.put(lane)

    def _once(self, event: str, act: Act, recipe: Recipe, destination: str) -> bool:
        name = self._name(event)
        self._prepare(name, recipe, destination)
        mark = self._environment.mark()
        relay = self._environment.relay(
            name,
            only=[destination],
            failpoint=Failpoint(event=event, nth=recipe.nth, act=act),
            mark=mark,
            limits=recipe.limits,
            environment=recipe.environment,
        )
        if recipe.stops:
            self._environment.wait(lambda: relay.code is not None or self._works(name, event), seconds=recipe.seconds)
            relay.signal(signal.SIGTERM)
        if recipe.asks:
            self._ask(relay, destination, seconds=recipe.seconds)
        if recipe.duty:
            self._keep_duties_due(name, relay)
        self._environment.wait(lambda: mark.exists() or relay.code is not None, seconds=recipe.seconds)
        met = mark.exists()
        if met and act == "stop":
            self._wake_up_late(name, _pid(self._environment, mark), destination)
        self._end(relay)
        if recipe.kind == "bug":
            relay.end()  # the bad deploy is rolled back as a whole: its child would pause the destination again
            self._environment.value("SELECT redrive.resume_1(%s, 'proof', 'mended')", destination)
        return met

    def _name(self, event: str) -> str:
        with self._counting:
            self._count += 1
            return f"strike-{self._count}-{event}"

    def _prepare(self, name: str, recipe: Recipe, destination: str) -> None:
        if recipe.messages:
            # About four of a key: more in one row would keep the end waiting, and show no more.
            keys = [f"{name}-{number}" for number in range(max(1, recipe.messages // 8))]
            order = Order(name=name, count=recipe.messages, destinations=[destination], plain=True, keys=keys)
            self._environment.enqueue(order)
        if recipe.suspects:
            self._make_suspects(name, destination)

    def _ask(self, relay: Process, destination: str, *, seconds: float) -> None:
        """Whether what has died could be sent; asked as soon as something has."""
        parked = "SELECT count(*) FROM redrive.parked WHERE destination = %s"
        self._environment.wait(
            lambda: relay.code is not None or self._environment.value(parked, destination), seconds=seconds
        )
        self._environment.value(
            "INSERT INTO redrive.request (destination, kind, message_id, row_version, asked_at, asked_by)"
            " SELECT k.destination, 'validate', k.id, k.row_version, clock_timestamp(), 'proof' FROM redrive.parked k"
            " WHERE k.destination = %s RETURNING 1",
            destination,
        )

    def _keep_duties_due(self, name: str, relay: Process) -> None:
        """All but reap stay due and without a holder until this relay has begun."""
        for _ in range(int(BEGIN_SECONDS / DUE_SECONDS)):
            self._environment.value(
                "UPDATE redrive.duty SET finished_at = NULL, holder = NULL, holder_until = NULL WHERE name <> 'reap'"
                " RETURNING 1"
            )
            if relay.code is not None or self._works(name, ""):
                break
            self._environment.wait(lambda: relay.code is not None, seconds=DUE_SECONDS)

    def _make_suspects(self, name: str, destination: str) -> None:
        killed = self._environment.relay(
            f"{name}-before", only=[destination], failpoint=Failpoint(event="send.start", nth=2)
        )
        self._environment.wait(lambda: killed.code is not None, seconds=END_SECONDS)

    def _works(self, name: str, event: str) -> bool:
        """The relay has begun; before a hand back it also has something to hand back."""
        leases = self._environment.value(
            "SELECT count(l.id) FROM redrive.relay r LEFT JOIN redrive.lease l USING (worker)"
            " WHERE r.name = %s GROUP BY r.worker",
            name,
        )
        return leases is not None and (leases >= 3 or not event.startswith("hand_back"))

    def _wake_up_late(self, name: str, frozen: int, destination: str) -> None:
        """The frozen process wakes up when its claims are lost and another is in the midst of the same messages."""
        leases = "SELECT count(*) FROM redrive.lease WHERE destination = %s"
        self._environment.wait(lambda: self._environment.value(leases, destination) == 0, seconds=REAPED_SECONDS)
        mark = self._environment.mark()
        heir = self._environment.relay(
            f"{name}-heir", only=[destination], failpoint=Failpoint(event="send.start", act="stop"), mark=mark
        )
        met = self._environment.wait(mark.exists, seconds=END_SECONDS)
        _wake(frozen)
        self._environment.wait(lambda: False, seconds=0.25 * self._environment.config.lease_seconds)
        if met:
            _wake(_pid(self._environment, mark))
        self._end(heir)

    def _end(self, relay: Process) -> None:
        """Killed by its failpoint, or (if that was its child) stopped gracefully."""
        relay.signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            relay.wait(END_SECONDS)
            return
        relay.signal(signal.SIGKILL)


def _tries(recipe: Recipe) -> Iterator[Recipe]:
    """Some with more time each: on a busy machine a child alone may take that long to start."""
    for _ in range(recipe.tries):
        yield recipe
    for times in LONGER_TRIES:
        yield replace(recipe, seconds=times * recipe.seconds)


def _pid(environment: Environment, mark: Path) -> int:
    """Of the process that fired, once it is frozen."""
    environment.wait(lambda: mark.read_text("ascii"), seconds=END_SECONDS)
    pid = int(mark.read_text("ascii"))
    environment.wait(lambda: state_of(pid) in {"T", ""}, seconds=END_SECONDS)
    return pid


def _wake(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)
