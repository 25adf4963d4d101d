"""Ordering keys as people read them: which are blocked, by what, and how much waits behind it.

A key's state is that of its head, the open message with the lowest sequence (`redrive.lane_head`). Keys are walked lane
by lane, at most `KEYS_WINDOW` at a time, so a long key costs no more than a short one.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from redrive.errors import NotFound
from redrive.message import MessageId, State
from redrive.store.reads import models
from redrive.store.reads.models import KEY_STATES, KeyFilter, KeyGroup, KeyPosition, KeyView, MessageView, Page
from redrive.store.reads.transaction import ReadTransaction, Row, check_limit, message_snapshot, moment_of
from redrive.store.runtime.postgres import PostgresStore

_ALL: Final = 2**31 - 1


async def list_keys(
    store: PostgresStore, wanted: KeyFilter, *, now: datetime | None = None
) -> Page[KeyView, KeyPosition]:
    """Open keys: those that wait for a person, then for a time, then the rest; in each the oldest first."""
    check_limit(wanted.limit)
    rows: list[KeyView] = []
    async with message_snapshot(store) as ask:
        at = now or await moment_of(ask)
        for start in _starts(wanted):
            rows += (found := await _group(ask, wanted, start, limit=wanted.limit - len(rows), now=at))
            if len(rows) == wanted.limit:
                return Page(rows, at, next=KeyPosition(start.group, found[-1].lane))
            ends = await ask("window_end_keys", **_walk(start))
            if ends:
                following = KeyPosition(start.group, ends[0]["lane"])
                return Page(rows, at, next=following, looked_at=models.KEYS_WINDOW)
    return Page(rows, at)


async def show_key(store: PostgresStore, tenant: str, order_by: str, *, now: datetime | None = None) -> KeyView | None:
    """One key with all that wait counted; None where nothing of it is open. NotFound for one that was never used."""
    async with message_snapshot(store) as ask:
        found = await _one(ask, tenant, order_by, now=now or await moment_of(ask), most=_ALL)
        if found is None and not (await ask("knows_key", tenant=tenant, order_by=order_by))[0]["known"]:
            raise NotFound(f"There is no ordering key {order_by!r} of tenant {tenant!r}.", next="redrive keys list")
    return found


async def count_blocked(ask: ReadTransaction, *, now: datetime) -> tuple[dict[str, int], int | None]:
    """Blocked keys by the state of their head; and how many were looked at, where that is not all."""
    counts = dict.fromkeys(models.BLOCKED, 0)
    looked_at = None
    for group in (KeyGroup.HALTED, KeyGroup.WAITING):
        walk = _walk(KeyPosition(group, 0))
        found = {row["state"]: row["keys"] for row in await ask("key_counts", **walk, now=now)}
        counts |= {state: found.get(state, 0) for state in KEY_STATES[group]}
        if sum(found.values()) >= models.KEYS_WINDOW:
            looked_at = models.KEYS_WINDOW
    return counts, looked_at


async def head_before(ask: ReadTransaction, view: MessageView, order_by: str | None) -> KeyView | None:
    """The head that a pending message waits behind, if any."""
    if order_by is None or view.state != State.PENDING:
        return None
    head = await _one(ask, view.tenant, order_by, now=await moment_of(ask), most=models.WAITING_MAX)
    return head if head and head.head != view.id else None


async def gone_out(store: PostgresStore, ids: Sequence[MessageId]) -> dict[MessageId, int]:
    """How many later messages went out, for each of these parked messages whose key went on without it."""
    async with message_snapshot(store) as ask:
        return {row["id"]: row["gone_out"] for row in await ask("gone_out", ids=list(ids))}


def _starts(wanted: KeyFilter) -> Iterator[KeyPosition]:
    """Where the walk through each group begins."""
    position = wanted.after or KeyPosition(KeyGroup.HALTED, 0)
    groups = [group for group in KeyGroup if not (wanted.blocked and group is KeyGroup.FLOWING)]
    for group in groups[groups.index(position.group) if position.group in groups else len(groups) :]:
        yield position if group is position.group else KeyPosition(group, 0)


async def _group(
    ask: ReadTransaction, wanted: KeyFilter, start: KeyPosition, *, limit: int, now: datetime
) -> list[KeyView]:
    rows = await ask(
        "keys",
        **_walk(start),
        states=list(KEY_STATES[start.group]),
        tenant=wanted.tenant,
        destination=wanted.destination,
        limit=limit,
        most=models.WAITING_MAX,
        now=now,
    )
    return [_view(row) for row in rows]


def _walk(start: KeyPosition) -> dict[str, object]:
    return {"after": start.lane, "halted": start.group is KeyGroup.HALTED, "window": models.KEYS_WINDOW}


async def _one(ask: ReadTransaction, tenant: str, order_by: str, *, now: datetime, most: int) -> KeyView | None:
    rows = await ask("key_one", tenant=tenant, order_by=order_by, now=now, most=most)
    return _view(rows[0]) if rows else None


def _view(row: Row) -> KeyView:
    return KeyView(**row, blocked=row["state"] in models.BLOCKED)
