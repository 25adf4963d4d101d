"""The app that the relays of a proof run: one destination for each way of dealing with doubt.

Every handler talks to the observer. `bug` destinations raise while `REDRIVE_PROVE_BUG` is set: a bad deploy. For a
process that has just started, `down` and `keyed` destinations are down and `rest` ones ask it to come back later.
`refused` destinations refuse everything.
"""

import os
from collections import Counter
from typing import Any

from redrive.answers import Answer, Retryable, Terminal
from redrive.app import App
from redrive.message import Attempt
from redrive.policy import Backoff, Breaker, Policy
from redrive.prove import client, config
from redrive.transports.functions import Handler

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


async def _complete(message: Attempt) -> Answer:
    return await client.complete(message, await client.send(message))


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


_RESENT: dict[str, Any] = {**_DECLARED, "in_doubt": "resend"}
_KINDS: dict[str, tuple[Handler, dict[str, Any]]] = {
    "lookup": (client.send, {**_ASKED, "validate": _validate}),
    "money": (client.send, {**_ASKED, "money": True, "token_ttl_seconds": 3600.0}),
    "record": (client.send, {**_ASKED, "record": client.record}),
    "complete": (_complete, _ASKED),
    "resend": (client.send, _RESENT),
    "hold": (client.send, {**_DECLARED, "in_doubt": "hold"}),
    "bug": (_raise_while_badly_deployed, _RESENT),
    "refused": (_refuse, _RESENT),
    "down": (_down_at_first, {**_RESENT, "breaker": _BREAKER}),
    "keyed": (_down_at_first, {**_RESENT, "breaker": _BREAKER, "rate": KEYED_RATE, "limit_key": lambda _: "host"}),
    "rest": (_rest_at_first, _RESENT),
}
for _kind, (_handler, _options) in _KINDS.items():
    for _name in (*(one for one in config.DESTINATIONS if one == f"prove-{_kind}"), *config.struck(_kind)):
        app.destination(_name, **_options)(_handler)
for name, limits in config.DEFAULT.limited.items():
    app.destination(
        name,
        rate=limits.rate,
        global_concurrency=limits.global_concurrency,
        breaker=Breaker(
            failures=limits.failures,
            cool_off_seconds=limits.cool_off_seconds,
            cool_off_max_seconds=limits.cool_off_max_seconds,
        ),
        **_RESENT,
    )(client.send)
