"""The app of `redrive prove desk`: one destination that refuses everything for one of four causes, until it is mended.

Three causes are gone with the next deploy (`REDRIVE_PROVE_MENDED`); the fourth is in the payload, and stays until
it is edited. What is not refused goes to the observer.
"""

import os
from collections.abc import Mapping
from typing import Final

from redrive.answers import Answer, Retryable, Terminal
from redrive.app import App
from redrive.message import Attempt
from redrive.operate.desk.causes import Cause
from redrive.policy import Backoff, Policy
from redrive.prove import client, config

DESTINATION: Final = "prove-desk"
MENDED_VARIABLE: Final = "REDRIVE_PROVE_MENDED"

_QUICK = Backoff(initial_seconds=0.05, multiplier=2, max_seconds=0.5, jitter="full")
_REFUSALS: Final[Mapping[str, Answer]] = {
    Cause.TRANSIENT: Retryable("HTTP_503", "busy"),
    Cause.AUTH_CONFIG: Terminal("HTTP_401", "key is not known"),
    Cause.CODE_DEFECT: Terminal("UNPRICED", "no price for row 17"),
}

app = App()


async def _validate(message: Attempt) -> None:
    if message.payload["cause"] == Cause.DATA and "currency" not in message.payload:
        raise Terminal("SCHEMA_INVALID", "currency is missing")


async def _send(message: Attempt) -> Answer:
    refusal = _REFUSALS.get(message.payload["cause"])
    if refusal is not None and not os.environ.get(MENDED_VARIABLE):
        return refusal
    return await client.send(message)


app.destination(
    DESTINATION,
    policy=Policy(attempts=1, lookups=config.DEFAULT.lookups_max, lookup_backoff=_QUICK, crashes=50),
    validate=_validate,
    lookup=client.lookup,
    lookup_after_seconds=config.DEFAULT.lookup_after_seconds,
    timeout_seconds=config.DEFAULT.timeout_seconds,
    concurrency=8,
    on_dead="continue",
)(_send)
