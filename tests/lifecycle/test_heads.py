"""The table of heads in docs/states.md, row by row: number 1 as the row says, another pending and due behind it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from redrive.message import Attempt, MessageId, ParkReason, Priority
from redrive.policy import Settlement
from redrive.ports import ClaimRequest
from redrive.store.runtime.postgres import PostgresStore
from tests.support import messages as m
from tests.support.verbs import ACT
from tools import state_tables

pytestmark = pytest.mark.req("G-07")

KEY = "customer:1"
ELSEWHERE = "elsewhere"
NOW = m.at(200)
Head = Callable[[PostgresStore], Awaitable[Any]]


async def first(store: PostgresStore, **values: Any) -> MessageId:
    return await m.enqueue(store, order_by=KEY, **values)


async def claimed(store: PostgresStore) -> Attempt:
    await first(store)
    return await m.claim(store)


def settled(settlement: Settlement) -> Head:
    async def head(store: PostgresStore) -> MessageId:
        attempt = await claimed(store)
        await m.settle(store, attempt, settlement)
        return attempt.id

    return head


async def suspect(store: PostgresStore) -> None:
    await claimed(store)
    await store.reap(limit=10, now=m.at(100))


async def paused(store: PostgresStore) -> None:
    await first(store, destination=ELSEWHERE)
    await store.pause(ELSEWHERE, **ACT, now=m.START)


async def breaker_open(store: PostgresStore) -> None:
    await first(store, destination=ELSEWHERE)
    await store.open_breaker(
        ELSEWHERE, claimed_at=m.START, code="REFUSED", cool_off_seconds=900, cool_off_max_seconds=900, now=m.START
    )


async def expired(store: PostgresStore) -> None:
    await first(store, expires_at=m.at(100))
    await store.expire(limit=10, now=m.at(150))


async def cancelled(store: PostgresStore) -> None:
    await store.cancel(await first(store), now=m.START)


async def skipped(store: PostgresStore) -> None:
    await first(store)
    await store.skip("default", KEY, **ACT, now=m.START)


async def discarded(store: PostgresStore) -> None:
    await store.discard(await settled(m.park())(store), **ACT, now=m.START)


HEADS: Final[dict[str, Head]] = {
    "pending": first,
    "pending, not due": lambda store: first(store, due_at=m.at(5_000)),
    "pending, waiting for a retry": settled(m.retry(delay_seconds=5_000)),
    "pending, in doubt, waiting for a retry": settled(m.retry(delay_seconds=5_000, in_doubt=True)),
    "pending, destination paused": paused,
    "pending, breaker of its destination open": breaker_open,
    "pending, suspect": suspect,
    "pending, advanced to its next stage": settled(m.advance()),
    "pending, expired": lambda store: first(store, expires_at=m.at(100)),
    "leased": claimed,
    "parked·dead": settled(m.park()),
    "parked·dead, the key goes on": settled(m.park(halts=False)),
    "parked·held": settled(m.park(ParkReason.HELD)),
    "parked·unrecorded": settled(m.park(ParkReason.UNRECORDED)),
    "closed·delivered": settled(m.close()),
    "closed·expired": expired,
    "closed·cancelled": cancelled,
    "closed·skipped": skipped,
    "closed·discarded": discarded,
    "parked·dead, the key goes on, then requeued": settled(m.park(halts=False)),
}


async def reach(store: PostgresStore, row: str) -> None:
    """Number 1 as the row says, number 2 behind it."""
    message_id = await HEADS[row](store)
    if row.endswith("then requeued"):
        await first(store)
        await m.settle(store, await m.claim(store), m.close())  # number 2 goes out; what waits is number 3
        await store.requeue(message_id, **ACT, out_of_order=True, now=m.START)
    await first(store)


async def claims(store: PostgresStore) -> str:
    """The sequence that two claims of both destinations take: the first may find an expired head and close it."""
    claim_requests = [ClaimRequest(name, Priority.NORMAL.level, 10) for name in (m.DESTINATION, ELSEWHERE)]
    taken: list[Attempt] = []
    for _ in range(2):
        taken += (await store.claim(m.WORKER, claim_requests, lease_seconds=m.LEASE_SECONDS, now=NOW)).attempts
    return _number(attempt.sequence for attempt in taken) or "nothing"


async def skips(store: PostgresStore) -> str:
    before = await _skipped(store)
    values = ["default", KEY, *ACT.values(), NOW]
    rows = await store.rows("SELECT redrive.skip_1(%s, %s, %s, %s, p_now => %s)", values)
    return _number(await _skipped(store) - before) or str(rows[0][0])


async def _skipped(store: PostgresStore) -> set[int]:
    query = (
        "SELECT m.sequence FROM redrive.attempt a JOIN redrive.message m ON m.id = a.message_id"
        " WHERE a.closed = 'skipped'"
    )
    return {row[0] for row in await store.rows(query, [])}


def _number(sequences: Any) -> str:
    return ", ".join(map(str, sequences))


@pytest.mark.parametrize("cell", state_tables.cells("heads"), ids=lambda cell: f"{cell.row}-{cell.column}")
async def test_the_head_decides_what_happens_to_its_key(shared_store: PostgresStore, cell: state_tables.Cell) -> None:
    await reach(shared_store, cell.row)
    act = {"claim": claims, "skip": skips}[cell.column]
    assert await act(shared_store) == cell.text
    assert await m.conserved(shared_store)


def test_every_head_of_the_table_is_made_and_no_other() -> None:
    assert state_tables.rows("heads") == list(HEADS)


async def test_requeue_into_a_key_that_went_on_changes_nothing_unless_it_is_meant(store: PostgresStore) -> None:
    dead = await settled(m.park(halts=False))(store)
    await first(store)
    await m.settle(store, await m.claim(store), m.close())
    values = [dead, *ACT.values()]
    for meant, word, state in ((False, "moved_on", "parked·dead"), (True, "done", "pending")):
        rows = await store.rows("SELECT redrive.requeue_1(%s, %s, %s, p_out_of_order => %s)", [*values, meant])
        assert (rows[0][0], await m.state_of(store, dead)) == (word, state)
