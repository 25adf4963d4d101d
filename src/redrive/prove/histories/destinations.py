"""The app that the relays of a history run: destinations of every kind, with handlers that can be hostile.

The message says what goes wrong: `faults`, one for each attempt. Handlers keep a journal of what they were told and
how they ended, so that the judge knows which outcomes the engine was given.
"""

import asyncio
import json
import os
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, NoReturn

import redrive
from redrive.answers import Advance, Answer, Delivered, Found, LookupAnswer, label
from redrive.app import App
from redrive.message import Attempt
from redrive.policy import Backoff, Breaker, Policy, Settlement
from redrive.prove import client

HANDLERS_VARIABLE: Final = "REDRIVE_PROVE_HANDLERS"
TIMEOUT_SECONDS: Final = 1.5
BLOCK_SECONDS: Final = 3.0  # beyond a lease
STUBBORN_SECONDS: Final = 4.0
SECOND_STAGE: Final = "second"
APP: Final = "redrive.prove.histories.destinations:app"

PLAIN: Final = "plain"  # cannot be asked: sent again in doubt
ASKED: Final = "asked"  # can be asked
HELD: Final = "held"  # cannot be asked: in doubt it waits for a person
RECORDED: Final = "recorded"  # its outcome is recorded with the application's own row
COMPLETED: Final = "completed"  # settled in the handler's own transaction
THREADED: Final = "threaded"  # a plain function, which runs in a thread
STAGED: Final = "staged"  # two stages
LIMITED: Final = "limited"  # a rate, at most two at a time over all relays, and a breaker
HEALTHY: Final = "healthy"  # nothing goes wrong here; how long its messages wait is measured
DESTINATIONS: Final = (PLAIN, ASKED, HELD, RECORDED, COMPLETED, THREADED, STAGED, LIMITED)
# Destinations that know a token again: a second send of one has no second effect, and is written down as a repeat.
REMEMBERING: Final = (ASKED, RECORDED, COMPLETED, STAGED)

# Of handlers: before the send, after it, of threads, of `record`.
HOSTILE: Final = (
    *("raise", "exit_before", "raise_odd", "nonsense", "exit", "block", "never", "stubborn", "system_exit"),
)
OF_RECORDS: Final = ("record_raise", "record_exit", "record_hang", "record_enqueue")

_QUICK = Backoff(initial_seconds=0.05, multiplier=2, max_seconds=0.3, jitter="full")
_DECLARED: dict[str, Any] = {
    "policy": Policy(attempts=4, backoff=_QUICK, lookups=6, lookup_backoff=_QUICK, crashes=2),
    "timeout_seconds": TIMEOUT_SECONDS,
    "concurrency": 4,
}

app = App()


class Odd(Exception):
    """An exception that cannot even be printed."""

    def __str__(self) -> NoReturn:
        raise RuntimeError("it cannot be printed")

    __repr__ = __str__


def _note(log: str, message: Attempt, **more: Any) -> None:
    line = {
        "log": log,
        "id": str(message.id),
        "attempt": message.number,
        "token": message.token,
        "destination": message.destination,
        "pid": os.getpid(),
        "parent": os.getppid(),
        "at": time.time(),
        **more,
    }
    file = os.open(os.environ[HANDLERS_VARIABLE], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(file, json.dumps(line).encode() + b"\n")
    finally:
        os.close(file)


async def _noted(message: Attempt, work: Callable[[Attempt], Awaitable[Any]]) -> Any:
    began = time.monotonic()
    try:
        answer = await work(message)
    except asyncio.CancelledError:
        _note("cut", message, seconds=time.monotonic() - began)
        raise
    except BaseException as error:
        _note("raised", message, kind=type(error).__name__, seconds=time.monotonic() - began)
        raise
    said = label(answer) if isinstance(answer, Answer) else "nonsense"
    _note("answered", message, answer=said, seconds=time.monotonic() - began)
    return answer


async def _work(message: Attempt) -> Any:
    fault = client.planned(message)
    _before(fault, message)
    answer = await client.send(message)
    return await _after(fault, message, answer)


def _before(fault: str | None, message: Attempt) -> None:
    if fault == "raise":
        raise ValueError("a bug of the handler")
    if fault == "exit_before":
        _note("exit", message)
        os._exit(7)


async def _after(fault: str | None, message: Attempt, answer: Answer) -> Any:
    match fault:
        case "raise_odd":
            raise Odd
        case "system_exit":
            _note("exit", message)
            raise SystemExit(3)
        case "nonsense":
            return object()
        case "exit":
            _note("exit", message)
            os._exit(7)
        case "block":
            _note("block", message, for_seconds=BLOCK_SECONDS)
            time.sleep(BLOCK_SECONDS)  # noqa: ASYNC251 - the handler is hostile
        case "never":
            await asyncio.Event().wait()
        case "stubborn":
            until = time.monotonic() + STUBBORN_SECONDS
            while time.monotonic() < until:
                try:
                    await asyncio.sleep(0.1)
                except asyncio.CancelledError:
                    _note("cut", message, seconds=TIMEOUT_SECONDS)
    return answer


async def send(message: Attempt) -> Any:
    return await _noted(message, _work)


def send_in_thread(message: Attempt) -> Any:
    """Where it never returns, its thread is lost."""

    async def work(message: Attempt) -> Any:
        fault = client.planned(message)
        _before(fault, message)
        answer = await client.send(message)
        if fault in ("never", "stubborn"):
            _note("never", message)
            threading.Event().wait(None if fault == "never" else STUBBORN_SECONDS)
        return await _after(None if fault == "stubborn" else fault, message, answer)

    return asyncio.run(_noted(message, work))


async def send_and_complete(message: Attempt) -> Any:
    async def work(message: Attempt) -> Any:
        answer = await _work(message)
        return await client.complete(message, answer) if isinstance(answer, Delivered) else answer

    return await _noted(message, work)


async def send_in_stages(message: Attempt) -> Any:
    async def work(message: Attempt) -> Any:
        answer = await _work(message)
        goes_on = isinstance(answer, Delivered) and message.stage != SECOND_STAGE
        return Advance(SECOND_STAGE, result={"from": message.stage}) if goes_on else answer

    return await _noted(message, work)


async def look_up_stage(message: Attempt) -> Answer | LookupAnswer:
    found = await client.lookup(message)
    if isinstance(found, Found) and message.stage != SECOND_STAGE:
        return Advance(SECOND_STAGE, result={"from": message.stage})
    return found


async def record(conn: Any, attempt: Attempt, settlement: Settlement) -> None:
    match client.planned(attempt):
        case "record_raise":
            raise ValueError("a bug of record")
        case "record_exit":
            _note("exit", attempt)
            os._exit(7)
        case "record_hang":
            await asyncio.sleep(60.0)
        case "record_enqueue":
            # It waits where a producer's open transaction has the ordering key.
            receipt = await redrive.aenqueue(
                conn, PLAIN, {"faults": []}, key=f"{attempt.id}/{attempt.number}", tenant=attempt.tenant, order_by="k1"
            )
            _note("enqueued", attempt, enqueued=str(receipt.id))
    await client.record(conn, attempt, settlement)


_ASKS: dict[str, Any] = {"lookup": client.lookup, "lookup_after_seconds": 0.3}
app.destination(PLAIN, in_doubt="resend", on_dead="continue", **_DECLARED)(send)
app.destination(ASKED, **_ASKS, **_DECLARED)(send)
app.destination(HELD, in_doubt="hold", **_DECLARED)(send)
app.destination(RECORDED, record=record, **_ASKS, **_DECLARED)(send)
app.destination(COMPLETED, **_ASKS, **_DECLARED)(send_and_complete)
app.destination(THREADED, in_doubt="resend", **_DECLARED)(send_in_thread)
app.destination(STAGED, **{**_ASKS, "lookup": look_up_stage}, **_DECLARED)(send_in_stages)
app.destination(
    LIMITED,
    in_doubt="resend",
    rate=20.0,
    global_concurrency=2,
    breaker=Breaker(failures=3, cool_off_seconds=0.3, cool_off_max_seconds=0.6),
    **_DECLARED,
)(send)
app.destination(HEALTHY, in_doubt="resend", **_DECLARED)(send)
