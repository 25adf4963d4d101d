"""A relay dies with messages of two destinations in flight, and one of the destinations hangs."""

from __future__ import annotations

import asyncio
import signal
import time

from redrive.app import App
from redrive.message import Attempt
from redrive.policy import Policy
from redrive.prove.isolation.app import QUICK, say_begun
from redrive.prove.isolation.environment import CaseEnvironment, Figure

APP = "redrive.prove.isolation.suspects:app"
COUNT = 12
TIMEOUT_SECONDS = 10.0
HEALED_SECONDS = 60.0
DELAY_SECONDS_MAX = 30.0

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


def run(environment: CaseEnvironment) -> list[Figure]:
    """How long after the kill the fast ones run again: their leases run out, a child process starts and runs them."""
    fast = [f"fast/{number}" for number in range(COUNT)]
    hanging = [f"hanging/{number}" for number in range(COUNT)]
    relay = environment.start_relay(app=APP)
    environment.send("hanging", hanging)
    environment.send("fast", fast)
    environment.wait_begun([*hanging, *fast])
    relay.signal(signal.SIGKILL)
    killed_at = time.monotonic()
    environment.start_relay(app=APP)
    environment.wait(lambda: all(len(environment.begun()[key]) > 1 for key in fast), seconds=HEALED_SECONDS)
    begun = environment.begun()
    missing = sum(len(begun[key]) < 2 for key in fast)
    last = max([killed_at, *(max(begun[key]) for key in fast)])
    return [
        Figure("suspects of the fast destination that were not run", missing, "", bound=0),
        Figure(
            f"after the kill the last of {COUNT} fast suspects began",
            last - killed_at,
            "s",
            bound=DELAY_SECONDS_MAX,
        ),
        Figure("what one of the hanging suspects takes", TIMEOUT_SECONDS, "s"),
    ]
