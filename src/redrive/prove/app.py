"""The app that the relays of a proof run: one destination for each way of dealing with doubt.

Every handler talks to the observer. `bug` destinations raise while `REDRIVE_PROVE_BUG` is set: a bad deploy. For a
process that has just started, `down` and `keyed` destinations are down and `rest` ones ask it to come back later.
`refused` destinations refuse everything.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

import psycopg

from redrive import completion
from redrive.answers import Answer, Retryable, Terminal
from redrive.app import App
from redrive.message import Attempt
from redrive.policy import Backoff, Breaker, Policy, Settlement
from redrive.prove import client, config

BUG_VARIABLE = "REDRIVE_PROVE_BUG"
KEYED_RATE = 100.0

_QUICK = Backoff(initial_seconds=0.05, multiplier=2, max_seconds=0.5, jitter="full")
_DECLARED: dict[str, Any] = {
    "policy": Policy(
        attempts=config.DEFAULT.attempts_max,
        backoff=_QUICK,
        lookups=config.DEFAULT.lookups_max,
        lookup_backoff=_QUICK,
        crashes=config.DEFAULT.crashes_max,
    ),
    "timeout_seconds": config.DEFAULT.timeout_seconds,
    "concurrency": 8,
    "on_dead": "continue",
}
_ASKED: dict[str, Any] = {
    **_DECLARED,
    "lookup": client.lookup,
    "lookup_after_seconds": config.DEFAULT.lookup_after_seconds,
}

app = App()


async def _validate(message: Attempt) -> None:
    """Every payload of the proof is a JSON object."""
    assert isinstance(message.payload, dict)


async def _record(conn: Any, attempt: Attempt, settlement: Settlement) -> None:
    await conn.execute(
        "INSERT INTO redrive_prove.recorded (message_id, attempt, kind) VALUES (%s, %s, %s)",
        [attempt.id, attempt.number, settlement.kind.value],
    )


async def _complete(message: Attempt) -> Answer:
    """Send, then settle in a transaction of our own."""
    answer = await client.send(message)
    async with await psycopg.AsyncConnection.connect(os.environ["REDRIVE_DSN"]) as conn:
        await conn.execute(
            "INSERT INTO redrive_prove.completed (message_id, attempt) VALUES (%s, %s)", [message.id, message.number]
        )
        await completion.acomplete(conn, message, answer)
    return answer


async def _raise_while_badly_deployed(message: Attempt) -> Answer:
    if os.environ.get(BUG_VARIABLE):
        raise ZeroDivisionError
    return await client.send(message)


async def _refuse(_: Attempt) -> Answer:
    return Terminal("REFUSED")


_BREAKER = Breaker(failures=2, cool_off_seconds=0.2, cool_off_max_seconds=0.4)
_tried: Counter[str] = Counter()


async def _down_at_first(message: Attempt) -> Answer:
    _tried[message.destination] += 1
    if _tried[message.destination] <= _BREAKER.failures:
        raise ConnectionRefusedError
    return await client.send(message)


async def _rest_at_first(message: Attempt) -> Answer:
    _tried[message.destination] += 1
    if _tried[message.destination] == 1:
        return Retryable("BUSY", retry_after=0.2)
    return await client.send(message)


for name in (config.LOOKUP, *config.struck("lookup")):
    app.destination(name, validate=_validate, **_ASKED)(client.send)
for name in config.struck("money"):
    app.destination(name, money=True, token_ttl_seconds=3600.0, **_ASKED)(client.send)
for name in (config.RECORD, *config.struck("record")):
    app.destination(name, record=_record, **_ASKED)(client.send)
for name in (config.COMPLETE, *config.struck("complete")):
    app.destination(name, **_ASKED)(_complete)
for name in (config.RESEND, *config.struck("resend")):
    app.destination(name, in_doubt="resend", **_DECLARED)(client.send)
for name in config.struck("bug"):
    app.destination(name, in_doubt="resend", **_DECLARED)(_raise_while_badly_deployed)
for name in config.struck("refused"):
    app.destination(name, in_doubt="resend", **_DECLARED)(_refuse)
for name in config.struck("down"):
    app.destination(name, in_doubt="resend", breaker=_BREAKER, **_DECLARED)(_down_at_first)
for name in config.struck("keyed"):
    app.destination(
        name, in_doubt="resend", breaker=_BREAKER, rate=KEYED_RATE, limit_key=lambda _: "host", **_DECLARED
    )(_down_at_first)
for name in config.struck("rest"):
    app.destination(name, in_doubt="resend", **_DECLARED)(_rest_at_first)
app.destination(config.HOLD, in_doubt="hold", **_DECLARED)(client.send)
for name, limits in config.DEFAULT.limited.items():
    app.destination(
        name,
        in_doubt="resend",
        rate=limits.rate,
        global_concurrency=limits.global_concurrency,
        breaker=Breaker(
            failures=limits.failures,
            cool_off_seconds=limits.cool_off_seconds,
            cool_off_max_seconds=limits.cool_off_max_seconds,
        ),
        **_DECLARED,
    )(client.send)
