"""The database's clock is set back by three hours, then forward by six."""

from __future__ import annotations

import time

from redrive.kit.proof import movable_clock
from redrive.prove.isolation.environment import CaseEnvironment, Figure

HOUR = 3600.0
COUNT = 100
LEASE_SECONDS = 2.0
SENDING_SECONDS = 3 * LEASE_SECONDS
BOUND_SECONDS = LEASE_SECONDS + 3.0  # a lease, and what a busy machine takes to look again
REAPED = """SELECT 1 FROM redrive.duty d WHERE d.name = 'reap'
             AND d.finished_at BETWEEN %s + interval '1 second' AND clock_timestamp()"""


def run(environment: CaseEnvironment) -> list[Figure]:
    """How long what was due waits, how long duties rest, and what goes out twice; on a server of its own."""
    if movable_clock.library() is None:
        return [Figure(f"NOT MEASURED: {movable_clock.MISSING}", 0, "")]
    with (
        movable_clock.open_movable(environment.directory) as (dsn, clock),
        CaseEnvironment(environment.directory, dsn) as here,
    ):
        here.start_relay(limits={"lease_seconds": LEASE_SECONDS})
        back = _jump(here, clock, "back", -3 * HOUR)
        forward = _jump(here, clock, "forward", 3 * HOUR)
        twice = sum(len(times) > 1 for times in here.begun().values())
        noticed = here.value("SELECT count(*) FROM redrive.clock_jump")
    return [
        *back,
        *forward,
        Figure("messages sent twice", twice, "", bound=0),
        Figure("jumps that were not noticed, or twice", abs(2 - noticed), "", bound=0),
    ]


def _jump(environment: CaseEnvironment, clock: movable_clock.MovableClock, name: str, offset: float) -> list[Figure]:
    """One message is being sent, others are due and wait in a paused destination; then the clock is set."""
    waiting = [f"{name}/{number}" for number in range(COUNT)]
    environment.send("slow", [f"{name}/sending"], {"seconds": SENDING_SECONDS})
    environment.wait_begun([f"{name}/sending"])
    environment.value("SELECT redrive.pause_1('neighbour', 'proof', 'proof')")
    environment.send("neighbour", waiting)
    clock.set_off(offset)
    began = time.monotonic()
    since = environment.value("SELECT clock_timestamp()")
    environment.value("SELECT redrive.resume_1('neighbour', 'proof', 'proof')")
    environment.wait_begun(waiting)
    waited = time.monotonic() - began
    environment.wait(lambda: environment.value(REAPED, since), seconds=2 * BOUND_SECONDS)
    rested = time.monotonic() - began
    environment.wait(lambda: environment.value("SELECT count(*) FROM redrive.lease") == 0, seconds=2 * SENDING_SECONDS)
    return [
        Figure(f"set {name}: all that was due was sent after", waited, "s", bound=BOUND_SECONDS),
        Figure(f"set {name}: the reaper ran again after", rested, "s", bound=BOUND_SECONDS),
    ]
