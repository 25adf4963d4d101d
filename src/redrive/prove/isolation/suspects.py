"""A relay dies with messages of two destinations in flight, and one of the destinations hangs."""

from __future__ import annotations

import asyncio
import signal
import time

from redrive.app import App
from redrive.message import Attempt
from redrive.policy import Policy
from redrive.prove.isolation.app import QUICK, say_begun
from redrive.prove.isolation.case import Case, Figure
from redrive.prove.isolation.ground import Ground

APP = "redrive.prove.isolation.suspects:app"
COUNT = 12
TIMEOUT_SECONDS = 10.0
HEALED_SECONDS = 60.0
DELAY_SECONDS_MAX = 15.0

app = App()


@app.destination(
    "hanging", in_doubt="resend", policy=Policy(attempts=5), concurrency=COUNT, timeout_seconds=TIMEOUT_SECONDS
)
async def hang(message: Attempt) -> None:
    """It never answers."""
    say_begun(message)
    await asyncio.sleep(3600)


@app.destination("fast", in_doubt="resend", policy=QUICK, concurrency=COUNT, timeout_seconds=TIMEOUT_SECONDS)
async def answer_after_a_crash(message: Attempt) -> None:
    """Its first attempt is in flight when the relay dies; the second one answers at once."""
    say_begun(message)
    if message.number == 1:
        await asyncio.sleep(3600)


def run(ground: Ground) -> list[Figure]:
    """How long the fast ones wait for a process that runs them, from the moment at which the last claim came back."""
    fast = [f"fast/{number}" for number in range(COUNT)]
    hanging = [f"hanging/{number}" for number in range(COUNT)]
    relay = ground.start_relay(app=APP)
    ground.send("hanging", hanging)
    ground.send("fast", fast)
    ground.wait_begun([*hanging, *fast])
    relay.signal(signal.SIGKILL)
    relay.wait(HEALED_SECONDS)
    ground.start_relay(app=APP)
    reaped = "SELECT count(DISTINCT message_id) = %s FROM redrive.attempt WHERE verb = 'reap'"
    ground.wait(lambda: bool(ground.value(reaped, 2 * COUNT)), seconds=HEALED_SECONDS)
    healed_at = time.monotonic()
    ground.wait(lambda: all(len(ground.begun()[key]) > 1 for key in fast), seconds=HEALED_SECONDS)
    begun = ground.begun()
    missing = sum(len(begun[key]) < 2 for key in fast)
    last = max([healed_at, *(begun[key][1] for key in fast if len(begun[key]) > 1)])
    return [
        Figure(what="suspects of the fast destination that were not run", measured=missing, unit="", bound=0),
        Figure(
            what=f"the last of {COUNT} fast suspects began after",
            measured=last - healed_at,
            unit="s",
            bound=DELAY_SECONDS_MAX,
        ),
        Figure(what="time that one hanging suspect takes", measured=TIMEOUT_SECONDS, unit="s"),
    ]


CASE = Case(
    name="suspects",
    title="A relay dies with messages of two destinations in flight, and one of the destinations hangs.",
    run=run,
)
