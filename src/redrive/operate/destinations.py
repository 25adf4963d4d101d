"""Destinations as operators see them: backlog, pause, breaker, limits, and the limit keys that need attention."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from redrive.errors import NotAllowed
from redrive.ports import LimitKeyState
from redrive.store.reads.messages import list_destinations
from redrive.store.reads.models import DestinationView
from redrive.store.reads.status import Backlog, status
from redrive.store.runtime.postgres import PostgresStore

KEYS_MAX: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class DestinationDetails:
    """known: None where it was never registered. limit_keys: those that rest, are paused, or whose breaker is not
    closed.
    """

    name: str
    open: Backlog
    known: DestinationView | None
    limit_keys: Sequence[LimitKeyState] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Destinations:
    at: datetime
    items: Sequence[DestinationDetails]


async def destinations(store: PostgresStore) -> Destinations:
    seen = await status(store)
    if seen.sees_nothing:
        raise NotAllowed("This login may not see any message, so none can be counted.", next="redrive status")
    known = {one.name: one for one in await list_destinations(store)}
    keys = await store.limit_keys([one.destination for one in seen.backlog], limit=KEYS_MAX)
    items = [
        DestinationDetails(
            name=one.destination,
            open=one,
            known=known.get(one.destination),
            limit_keys=[key for key in keys if key.destination == one.destination],
        )
        for one in seen.backlog
    ]
    return Destinations(at=seen.at, items=items)
