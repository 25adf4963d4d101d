"""Every verb of docs/states.md as a function of a situation: it acts, and returns the word that was answered.

None means that the verb simply happened (or saw nothing); the tests look at the state to tell which.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from redrive.errors import ActRefused, NotFound
from redrive.message import Attempt, Closed, ParkReason, WorkerId
from redrive.policy import Settlement
from redrive.ports import Settled
from redrive.store.runtime import desk
from redrive.store.runtime.postgres import PostgresStore
from redrive.store.runtime.wire import settle_call
from tests.support import messages as m
from tests.support.situations import EXPIRES_AT, NOBODY, ORDER_BY, Situation

Verb = Callable[[PostgresStore, Situation], Awaitable[str | None]]
ACT: dict[str, Any] = {"actor": "ada", "reason": "looked into it"}


def _word(settled: Settled) -> str | None:
    if settled.refused:
        return "refused"
    return "repeated" if settled.repeated else None


def settles(settlement: Settlement) -> Verb:
    async def verb(store: PostgresStore, s: Situation) -> str | None:
        return _word(await m.settle(store, s.held, settlement, now=s.now))

    return verb


async def settle_late(store: PostgresStore, s: Situation) -> str | None:
    return _word(await m.settle(store, s.stale, m.close(), now=s.now, worker=m.OTHER_WORKER))


async def settle_again(store: PostgresStore, s: Situation) -> str | None:
    attempt, settlement = s.last
    return _word(await m.settle(store, attempt, settlement, now=s.now))


async def complete(store: PostgresStore, s: Situation) -> str | None:
    query, values = settle_call(m.WORKER, "complete", [m.outcome(s.held, m.close())])
    rows = await store.rows(query, values)
    return str(rows[0][2]) if rows else None


async def enqueue(store: PostgresStore, s: Situation) -> str | None:
    row = await m.enqueue_row(store, key=s.key, now=s.now, expires_at=EXPIRES_AT)
    return str(row[0])


async def enqueue_other(store: PostgresStore, s: Situation) -> str | None:
    row = await m.enqueue_row(store, key=s.key, now=s.now, body=b'{"order":2}', expires_at=EXPIRES_AT)
    return str(row[0])


async def claim(store: PostgresStore, s: Situation) -> str | None:
    await m.claim_all(store, now=s.now)
    return None


async def claim_suspect(store: PostgresStore, s: Situation) -> str | None:
    await store.claim_suspect(m.WORKER, [m.DESTINATION], lease_seconds=m.LEASE_SECONDS, now=s.now)
    return None


async def dispatch(store: PostgresStore, s: Situation) -> str | None:
    return None if await store.is_leased(s.held.fence) else "lost"


def _holder(attempt: Attempt, s: Situation) -> WorkerId:
    return m.OTHER_WORKER if attempt is s.stale else m.WORKER


async def hand_back(store: PostgresStore, s: Situation) -> str | None:
    ours = await store.hand_back(_holder(s.held, s), [s.held.fence], now=s.now)
    return None if ours == [s.held.fence] else "lost"


async def renew(store: PostgresStore, s: Situation) -> str | None:
    worker = _holder(s.held, s)
    ours = await store.renew(worker, [s.held.fence], lease_seconds=m.LEASE_SECONDS, now=s.now)
    return None if ours == [s.held.fence] else "lost"


async def reap(store: PostgresStore, s: Situation) -> str | None:
    await store.reap(limit=10, now=m.at(1_000))
    return None


async def expire(store: PostgresStore, s: Situation) -> str | None:
    await store.expire(limit=10, now=EXPIRES_AT)
    return None


async def cancel(store: PostgresStore, s: Situation) -> str | None:
    try:
        return (await store.cancel(s.id, now=s.now)).value
    except NotFound:
        return "not_found"


async def cancel_by_operator(store: PostgresStore, s: Situation) -> str | None:
    try:
        return (await store.cancel(s.id, **ACT, now=s.now)).value
    except ActRefused as refused:
        return _refusal(str(refused))


def act(name: str, **options: bool) -> Verb:
    """An operator's act, by the name of the store's method."""

    async def verb(store: PostgresStore, s: Situation) -> str | None:
        try:
            await getattr(store, name)(s.id, **ACT, **options, now=s.now)
        except NotFound:
            return "not_found"
        except ActRefused as refused:
            word = _refusal(str(refused))
            return "closed" if word in set(Closed) else word
        return None

    return verb


async def skip(store: PostgresStore, s: Situation) -> str | None:
    """Of the ordering key `ORDER_BY`, whichever message is its head."""
    values = ["default", ORDER_BY, *ACT.values(), s.now]
    rows = await store.rows("SELECT redrive.skip_1(%s, %s, %s, %s, p_now => %s)", values)
    return None if rows[0][0] == "done" else str(rows[0][0])


async def edit(store: PostgresStore, s: Situation) -> str | None:
    """A new payload, by somebody who saw the record as it is."""
    rows = await store.rows("SELECT row_version FROM redrive.parked WHERE id = %s", [s.id])
    seen = {"row_version": rows[0][0] if rows else 1, "content_type": "application/json", "paths": [], **ACT}
    word = await desk.edit(store, s.id, body=b"2", now=s.now, **seen)
    return None if word == "done" else "closed" if word in set(Closed) else word


async def edit_triaged(store: PostgresStore, s: Situation) -> str | None:
    await desk.triage(store, [s.id], "data", **ACT, now=s.now)
    return await edit(store, s)


async def replay(store: PostgresStore, s: Situation) -> str | None:
    wanted = desk.NewReplay(name="x", filter={"ids": [str(s.id)]}, override=True, **ACT)
    await desk.create_replay(store, wanted, now=s.now)
    await store.run_replay(every_seconds=0.9, limit=10, now=s.now)
    return None


def _refusal(text: str) -> str:
    if "something says that it was delivered" in text:
        return "evidence"
    found = re.search(r" is (\w+);", text)
    assert found, text
    return found[1]


LONG_AFTER = datetime(2100, 1, 1, tzinfo=UTC)  # every range has ended by then


async def retire(store: PostgresStore, s: Situation) -> str | None:
    if s.id == NOBODY:
        return await store.retire(datetime(2001, 1, 1, tzinfo=UTC))
    starts_at = (await store.ranges())[0][0]
    async with asyncio.timeout(20):
        # Any other transaction, such as autovacuum's, makes the range count as young for its moment.
        while (word := await store.retire(starts_at, now=LONG_AFTER)) == "young":  # noqa: ASYNC110 - nobody could set an event
            await asyncio.sleep(0.01)
    return word


VERBS: Mapping[str, Verb] = {
    "enqueue": enqueue,
    "enqueue (other payload)": enqueue_other,
    "claim": claim,
    "claim suspect": claim_suspect,
    "dispatch": dispatch,
    "settle (close)": settles(m.close()),
    "settle (retry)": settles(m.retry()),
    "settle (retry, in doubt)": settles(m.retry(in_doubt=True)),
    "settle (advance)": settles(m.advance()),
    "settle (late)": settle_late,
    "settle (again)": settle_again,
    "park (dead)": settles(m.park(ParkReason.DEAD)),
    "park (held)": settles(m.park(ParkReason.HELD)),
    "park (unrecorded)": settles(m.park(ParkReason.UNRECORDED)),
    "complete": complete,
    "hand back": hand_back,
    "renew": renew,
    "reap": reap,
    "expire": expire,
    "cancel": cancel,
    "cancel (operator)": cancel_by_operator,
    "requeue": act("requeue"),
    "requeue (out of order)": act("requeue", out_of_order=True),
    "confirm": act("confirm"),
    "deny": act("deny"),
    "repair": act("repair"),
    "discard": act("discard"),
    "retire": retire,
    "skip": skip,
    "edit": edit,
    "edit (triaged)": edit_triaged,
    "replay": replay,
}
