"""Apps whose handlers and records misbehave, run by the relays of the crash tests. What one does is in its payload.

The observer is the destination; a gate is a file for which a handler waits, so that a test decides when it goes on.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import threading
from pathlib import Path
from typing import Any

import psycopg

import redrive
from redrive.answers import Advance, Answer, Delivered, Retryable
from redrive.app import App
from redrive.message import Attempt
from redrive.policy import Backoff, Policy, Settlement
from redrive.prove import client

GATE_VARIABLE = "REDRIVE_TEST_GATE"
QUICK = Policy(attempts=5, backoff=Backoff(initial_seconds=0.05, multiplier=2, max_seconds=0.3))
AT_ONCE = Backoff(initial_seconds=0)
ONCE = Policy(attempts=1)
TWICE = Policy(attempts=2, backoff=AT_ONCE)


async def pass_gate(name: str) -> None:
    """Wait until the test has opened it."""
    while not is_open(name):  # noqa: ASYNC110 - another process opens it
        await asyncio.sleep(0.02)


def stand_at_gate(name: str, message: Attempt) -> None:
    """Let the test see that this attempt has begun."""
    Path(f"{os.environ[GATE_VARIABLE]}-{name}.at-{message.id}-{message.number}").touch()


def is_open(name: str) -> bool:
    return Path(f"{os.environ[GATE_VARIABLE]}-{name}").exists()


# A payload that takes its process down.

crashing = App()


async def crash_if_told(message: Attempt) -> Answer:
    match message.payload.get("do"):
        case "exit":
            os._exit(3)
        case "segfault":
            ctypes.string_at(0)
    return await client.send(message)


crashing.destination("resend", in_doubt="resend", policy=QUICK, timeout_seconds=5)(crash_if_told)
crashing.destination("hold", in_doubt="hold", policy=QUICK, timeout_seconds=5)(crash_if_told)


# Handlers that wait for a gate.

gated = App()


async def wait_and_send(message: Attempt) -> Answer:
    """Each attempt has a gate of its own where the payload says so."""
    name = message.payload["gate"]
    stand_at_gate(name, message)
    await pass_gate(f"{name}-{message.number}" if message.payload.get("each") else name)
    return await client.send(message)


gated.destination("gated", in_doubt="resend", policy=QUICK, concurrency=50, timeout_seconds=60)(wait_and_send)
gated.destination("neighbour", in_doubt="resend", policy=QUICK, timeout_seconds=5)(client.send)


# Money that can neither be asked about nor told apart by a token.

paying = App()


@paying.destination("bank", money=True, policy=QUICK, concurrency=10, timeout_seconds=60)
async def wait_and_pay(message: Attempt) -> None:
    """Only those that name a gate wait."""
    if "gate" in message.payload:
        stand_at_gate(message.payload["gate"], message)
        await pass_gate(message.payload["gate"])


# A `record` that fails in the way that the payload says, until the test has mended it.

recording = App()


async def fail_as_told(conn: Any, attempt: Attempt, settlement: Settlement) -> None:
    how = attempt.payload["record"]
    await conn.execute(
        "INSERT INTO redrive_prove.recorded (message_id, attempt, kind) VALUES (%s, %s, %s)",
        [attempt.id, attempt.number, settlement.kind.value],
    )
    if is_open("exits"):
        os._exit(3)
    if not is_open("mended"):
        await fail(conn, how)


async def fail(conn: Any, how: str) -> None:
    match how:
        case "raise":
            raise LookupError(how)
        case "SystemExit":
            raise SystemExit(1)
        case "CancelledError":
            raise asyncio.CancelledError
        case "timeout":
            await asyncio.sleep(60)
        case "aborted":
            try:
                await conn.execute("SELECT 1/0")
            except psycopg.errors.DivisionByZero:
                return
        case "deferred":
            await conn.execute("INSERT INTO redrive_prove.deferred VALUES (1)")
        case "deadlock":
            await conn.execute("SET LOCAL lock_timeout = 0")  # or it would give up before the deadlock is noticed
            await conn.execute("SELECT pg_advisory_xact_lock(1)")
            await conn.execute("SELECT pg_advisory_xact_lock(2)")
        case "transient":
            raise psycopg.errors.DeadlockDetected(how)


async def follow_up(conn: Any, attempt: Attempt, settlement: Settlement) -> None:
    """Enqueues for the ordering key that the payload names."""
    await redrive.aenqueue(conn, "book", {"record": "well"}, order_by=attempt.payload["key"])


recording.destination("follow", record=follow_up, in_doubt="resend", policy=QUICK, timeout_seconds=5)(client.send)
recording.destination("book", record=fail_as_told, in_doubt="resend", policy=QUICK, timeout_seconds=5)(client.send)


# Handlers that must not take the relay down.

rude = App()


class NotJson:
    pass


async def raise_system_exit(message: Attempt) -> None:
    raise SystemExit(1)


async def raise_keyboard_interrupt(message: Attempt) -> None:
    raise KeyboardInterrupt


async def raise_stop_iteration(message: Attempt) -> None:
    raise StopIteration


async def raise_cancelled(message: Attempt) -> None:
    raise asyncio.CancelledError


async def recurse(message: Attempt) -> None:
    await recurse(message)


async def return_garbage(message: Attempt) -> Any:
    return 42


async def return_unserialisable(message: Attempt) -> Answer:
    return Delivered(result={"value": NotJson()})


async def return_bad_retry_after(message: Attempt) -> Answer:
    return Retryable("BUSY", retry_after=object())  # type: ignore[arg-type]


async def return_bad_stage(message: Attempt) -> Answer:
    return Advance("a\x00b")


async def return_bad_code(message: Attempt) -> Answer:
    return Retryable("\ud800 \x00 not a code")


async def hang(message: Attempt) -> None:
    await asyncio.sleep(3600)


async def swallow_cancellation(message: Attempt) -> None:
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            continue


def raise_stop_iteration_in_a_thread(message: Attempt) -> None:
    raise StopIteration


def raise_system_exit_in_a_thread(message: Attempt) -> None:
    raise SystemExit(1)


def block_a_thread(message: Attempt) -> None:
    threading.Event().wait()


RUDE = (
    raise_system_exit,
    raise_keyboard_interrupt,
    raise_stop_iteration,
    raise_cancelled,
    recurse,
    return_garbage,
    return_unserialisable,
    return_bad_retry_after,
    return_bad_stage,
    return_bad_code,
    hang,
    swallow_cancellation,
    raise_stop_iteration_in_a_thread,
    raise_system_exit_in_a_thread,
    block_a_thread,
)
for handler in RUDE:
    budget = TWICE if handler is return_bad_retry_after else ONCE  # a last attempt asks for no delay
    rude.destination(handler.__name__, in_doubt="resend", policy=budget, timeout_seconds=0.5)(handler)
rude.destination("polite", policy=QUICK, timeout_seconds=5)(client.send)


async def validate_rudely(message: Attempt) -> None:
    raise SystemExit(1)


async def look_up_rudely(message: Attempt) -> Any:
    raise KeyboardInterrupt


rude.destination("validate", validate=validate_rudely, policy=ONCE, timeout_seconds=0.5)(client.send)
rude.destination(
    "lookup",
    lookup=look_up_rudely,
    policy=Policy(attempts=3, lookups=2, backoff=AT_ONCE, lookup_backoff=AT_ONCE),
    timeout_seconds=0.5,
)(hang)


# What never ends, beside what does.

hanging = App()


@hanging.destination("hanging", in_doubt="resend", policy=TWICE, concurrency=12, timeout_seconds=30)
async def never_answer(message: Attempt) -> None:
    stand_at_gate("hanging", message)
    await asyncio.sleep(3600)


@hanging.destination("fast", in_doubt="resend", policy=TWICE, concurrency=12, timeout_seconds=10)
async def answer_when_open(message: Attempt) -> None:
    stand_at_gate("fast", message)
    await pass_gate("fast")


@hanging.destination("blocking", in_doubt="resend", policy=TWICE, timeout_seconds=0.5)
async def block_the_event_loop(message: Attempt) -> None:
    """No child ends by itself, and none renews."""
    if message.alone:
        threading.Event().wait()


@hanging.destination("threads", in_doubt="resend", policy=TWICE, concurrency=3, timeout_seconds=0.3)
def hold_the_thread(message: Attempt) -> None:
    if message.payload["hangs"]:
        threading.Event().wait()
