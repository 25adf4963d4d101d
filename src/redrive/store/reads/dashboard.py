"""What screens read beside the lists: whether anything changed, recent traffic, the progress of a failure group.

Each call is one snapshot. No cost grows with the history: at most `TRAFFIC_WINDOW` rows are read, from its end.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, NamedTuple
from uuid import UUID

import psycopg

from redrive.errors import InvalidValue, NotAllowed, SchemaError
from redrive.message import MessageId
from redrive.store.reads import models
from redrive.store.reads.models import Page
from redrive.store.reads.transaction import Row, check_limit, message_snapshot, moment_of, read, snapshot
from redrive.store.runtime.postgres import PostgresStore

TRAFFIC_WINDOW: Final = 20_000  # attempts that are looked at, the newest
SAMPLE_BYTES_MAX: Final = 16_384  # a larger payload is no sample
DELIVERED_WINDOW: Final = 2000  # messages among which delivered ones are looked for
REPLAYS_WINDOW: Final = 1000


class Slot(NamedTuple):
    """What ended in one slot of time. median_ms, slow_ms: half and 95 % of the sends took no longer."""

    slot: int
    delivered: int
    retried: int
    parked: int
    median_ms: float | None
    slow_ms: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Attempts by slot, without empty slots. began: from when on all count, where that is after `since`."""

    since: datetime
    until: datetime
    slot_seconds: float
    slots: Sequence[Slot]
    began: datetime | None = None


class RetryDelay(NamedTuple):
    """How long messages waited after so many failures."""

    spent: int
    attempts: int
    median_seconds: float
    longest_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStep:
    """The dead letters of a group that are at one step of the workflow."""

    workflow: str
    messages: int
    in_doubt: int
    edited: int
    escalated: int
    tenants: int
    cause: str | None
    since: datetime


class Sample(NamedTuple):
    id: MessageId
    body: bytes


async def pulse(store: PostgresStore) -> int:
    """A number that changes when anything changes that a screen shows."""
    return int((await read(store, "pulse"))[0]["changes"])


async def traffic(
    store: PostgresStore, *, span: timedelta = timedelta(hours=1), slots: int = 60, destination: str | None = None
) -> Traffic:
    """What ended lately, of messages that were created within the span."""
    async with message_snapshot(store) as ask:
        until = await moment_of(ask)
        since, slot_seconds = until - span, span.total_seconds() / slots
        await ask.by_index()
        rows = await ask(
            "traffic",
            floor_id=_floor(since),
            window=TRAFFIC_WINDOW,
            since=since,
            slot_seconds=slot_seconds,
            destination=destination,
        )
    began = rows[0].pop("began") if rows else None
    found = [Slot(**{name: row[name] for name in Slot._fields}) for row in rows]
    return Traffic(since=since, until=until, slot_seconds=slot_seconds, slots=found, began=began)


async def retry_delays(
    store: PostgresStore, destination: str, *, span: timedelta = timedelta(days=1)
) -> list[RetryDelay]:
    """The observed retry curve of a destination, the first failure first."""
    async with snapshot(store) as ask:
        floor = _floor(await moment_of(ask) - span)
        await ask.by_index()
        rows = await ask("retry_delays", floor_id=floor, window=TRAFFIC_WINDOW, destination=destination)
    return [RetryDelay(**row) for row in rows]


async def group_steps(store: PostgresStore, fingerprint: bytes) -> dict[str, GroupStep]:
    rows = await read(store, "group_steps", fingerprint=fingerprint, most=models.GROUP_WAITING_MAX)
    return {row["workflow"]: GroupStep(**row) for row in rows}


async def group_samples(store: PostgresStore, fingerprint: bytes, *, limit: int) -> list[Sample]:
    """Payloads of its dead letters. NotAllowed for a login that may not read payloads."""
    async with message_snapshot(store) as ask:
        if not (await ask("may_read"))[0]["payload"]:
            raise NotAllowed(
                "This login may not read payloads.", next="a login with SELECT on redrive.message and body"
            )
        rows = await ask("group_samples", fingerprint=fingerprint, limit=limit, bytes_max=SAMPLE_BYTES_MAX)
    return [Sample(**row) for row in rows]


async def delivered_samples(store: PostgresStore, destination: str, kind: str, *, limit: int) -> list[Sample]:
    """Payloads that the destination accepted; the same privilege."""
    values = {"destination": destination, "kind": kind, "limit": limit}
    async with message_snapshot(store) as ask:
        await ask.by_index()
        rows = await ask("delivered_samples", **values, window=DELIVERED_WINDOW, bytes_max=SAMPLE_BYTES_MAX)
    return [Sample(**row) for row in rows]


async def group_replays(store: PostgresStore, group: str, *, limit: int = 3) -> list[UUID]:
    rows = await read(store, "group_replays", group=group, window=REPLAYS_WINDOW, limit=limit)
    return [row["id"] for row in rows]


async def list_of_a_system(
    store: PostgresStore, statement: bytes, *, position: str, before: str | None, search: str | None, limit: int
) -> Page[Row, str]:
    """A page of a system's own SQL. position: the column of the cursor. SchemaError where its tables are missing."""
    check_limit(limit)
    try:
        async with snapshot(store) as ask:
            at = await moment_of(ask)
            rows = await ask.run(statement, {"before": before, "search": search, "limit": limit})
    except psycopg.errors.DataError:
        raise InvalidValue(f"{before!r} is no position; use the one that a page ends with.") from None
    except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
        raise SchemaError("The tables of this system are not in the database.", next="redrive db upgrade") from None
    return Page.of(rows, at, limit=limit, position=lambda row: str(row[position]))


def _floor(moment: datetime) -> UUID:
    """The smallest id of a moment."""
    return UUID(int=max(0, int(moment.timestamp() * 1000)) << 80)
