"""Tests a destination that is held back: a relay sends one message that waits. SQL: `half_open_1` in `breaker.sql`."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from redrive.errors import ActRefused, NotFound
from redrive.message import MessageId
from redrive.store.reads.messages import show_destination
from redrive.store.reads.models import DestinationView
from redrive.store.runtime.postgres import PostgresStore
from redrive.who import Who

LOOK_EVERY_SECONDS: Final = 0.1
SETTLED_SECONDS: Final = 2.0  # from what is known of the destination to what is written of the message

_WHY_NOT: Final[Mapping[str, tuple[str, str]]] = {
    "paused": ("is paused, and a person decides when it goes on", "redrive destinations resume {name} --reason '…'"),
    "flows": ("is not held back: messages flow, and none needs to go first", "redrive destinations list"),
    "empty": (
        "has nothing that is due, so there is nothing to try it with",
        "redrive messages list --destination {name}",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tested:
    """answered: None where no relay took the message in time, or it did not come back.

    answer, code: what the archive has about the attempt; None while it runs. known: the destination as it is
    afterwards.
    """

    name: str
    answered: bool | None
    message_id: MessageId | None
    answer: str | None
    code: str | None
    known: DestinationView


async def probe(store: PostgresStore, name: str, who: Who, *, seconds: float) -> Tested:
    """Let one message through, and wait for so long. ActRefused where there is nothing to let through."""
    since = await store.now()
    _check(name, await store.half_open(name, actor=who.actor, reason=who.reason))
    seen = await _ended(store, name, since, seconds=seconds)
    answered = _answered(seen, since)
    entry = await _entry(store, seen.breaker_probe, since, seconds=0.0 if answered is None else SETTLED_SECONDS)
    return Tested(
        name=name,
        answered=answered,
        message_id=seen.breaker_probe if entry is not None or seen.breaker == "half_open" else None,
        answer=entry[0] if entry else None,
        code=entry[1] if entry else None,
        known=seen,
    )


def _check(name: str, answer: str) -> None:
    if answer == "not_found":
        raise NotFound(f"There is no destination {name!r}.", next="redrive destinations list")
    if answer in _WHY_NOT:
        why, advice = _WHY_NOT[answer]
        raise ActRefused(f"{name} {why}.", next=advice.format(name=name))


def _answered(seen: DestinationView, since: datetime) -> bool | None:
    if seen.breaker in ("ramping", "closed"):
        return True
    return False if seen.breaker_opened_at is not None and seen.breaker_opened_at > since else None


async def _ended(store: PostgresStore, name: str, since: datetime, *, seconds: float) -> DestinationView:
    deadline = asyncio.get_running_loop().time() + seconds
    while True:
        seen = await show_destination(store, name)
        assert seen is not None
        if _answered(seen, since) is not None or asyncio.get_running_loop().time() > deadline:
            return seen
        await asyncio.sleep(LOOK_EVERY_SECONDS)


async def _entry(
    store: PostgresStore, id: MessageId | None, since: datetime, *, seconds: float
) -> tuple[str | None, str | None] | None:
    """Of the probe's attempt, which is settled right after the destination is told."""
    deadline = asyncio.get_running_loop().time() + seconds
    while id is not None:
        ended = [e for e in await store.history(id) if e.verb in ("settle", "complete") and e.completed_at > since]
        if ended:
            return ended[-1].answer, ended[-1].code
        if asyncio.get_running_loop().time() > deadline:
            return None
        await asyncio.sleep(LOOK_EVERY_SECONDS)
    return None
