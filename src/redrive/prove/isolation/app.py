"""The app of this proof: handlers say when they began, then do what their payload asks for."""

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

from redrive.app import App
from redrive.message import Attempt
from redrive.policy import Backoff, Policy
from redrive.prove.isolation.environment import (
    LOG_VARIABLE,
    NEIGHBOUR,
    RATED,
    RATED_PER_SECOND,
    SUSPECT_TIMEOUT_SECONDS,
    SUSPECTS,
)

QUICK = Policy(attempts=3, backoff=Backoff(initial_seconds=0.05, multiplier=2, max_seconds=0.5, jitter="full"))

app = App()


def say_begun(message: Attempt) -> None:
    """One line, written by one call, so that processes do not mix theirs."""
    line = json.dumps({"key": message.key, "at": time.monotonic()})
    with Path(os.environ[LOG_VARIABLE]).open("a") as log:
        log.write(line + "\n")


@app.destination(NEIGHBOUR, in_doubt="resend", policy=QUICK)
async def begin(message: Attempt) -> None:
    """A healthy destination."""
    say_begun(message)


@app.destination("slow", in_doubt="resend", policy=QUICK, timeout_seconds=60)
async def take_long(message: Attempt) -> None:
    """As many seconds as the payload says."""
    say_begun(message)
    await asyncio.sleep(message.payload["seconds"])


@app.destination(RATED, in_doubt="resend", policy=QUICK, concurrency=20, rate=RATED_PER_SECOND)
async def begin_at_a_rate(message: Attempt) -> None:
    """A healthy destination that allows so many a second."""
    say_begun(message)


_CRASHING: dict[str, Any] = {
    "in_doubt": "resend",
    "concurrency": SUSPECTS,
    "timeout_seconds": SUSPECT_TIMEOUT_SECONDS,
}


@app.destination("hanging", policy=Policy(attempts=5), **_CRASHING)
async def hang(message: Attempt) -> None:
    """It never answers."""
    say_begun(message)
    await asyncio.sleep(3600)


@app.destination("fast", policy=QUICK, **_CRASHING)
async def answer_after_a_crash(message: Attempt) -> None:
    """Its first attempt is in flight when the relay dies; the second one answers at once."""
    say_begun(message)
    if message.number == 1:
        await asyncio.sleep(3600)
