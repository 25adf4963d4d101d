"""The app of this proof: handlers say when they began, then do what their payload asks for."""

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

import redrive
from redrive.app import App
from redrive.message import Attempt
from redrive.policy import Backoff, Policy, Settlement
from redrive.prove.isolation.environment import (
    HELD_KEY,
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


async def say_recorded(conn: Any, message: Attempt, settlement: Settlement) -> None:  # noqa: ARG001 - as records are
    say_begun(message)


async def hang_in_record(conn: Any, message: Attempt, settlement: Settlement) -> None:  # noqa: ARG001
    await asyncio.sleep(3600)


async def follow_up(conn: Any, message: Attempt, settlement: Settlement) -> None:  # noqa: ARG001
    """It waits for the producer that holds the ordering key open."""
    await redrive.aenqueue(conn, NEIGHBOUR, {}, key=f"after/{message.key}", order_by=HELD_KEY)


async def answer(message: Attempt) -> None:
    """At once: the trouble is in the record."""


app.destination("booked", in_doubt="resend", record=say_recorded)(answer)
app.destination("hanging-record", in_doubt="resend", concurrency=50, record=hang_in_record)(answer)
app.destination("follows", in_doubt="resend", concurrency=50, record=follow_up)(answer)


@app.destination("threads", in_doubt="resend", concurrency=3, timeout_seconds=1.0, policy=QUICK)
def block_a_thread(message: Attempt) -> None:
    """A plain function, which never returns where the payload says so."""
    say_begun(message)
    if message.payload["blocks"]:
        time.sleep(3600)


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
