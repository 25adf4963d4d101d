"""The reply to a commit is lost on the way: the server has done it, the client cannot know (F16, I35).

The proxy cuts the connection after the server has finished. What follows must double nothing and lose nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from redrive.message import Attempt
from redrive.policy import Settlement
from redrive.ports import TransientFailure
from redrive.store.runtime.postgres import PostgresStore
from tests.support import messages as m
from tests.support.proxy import Proxy, proxied


@pytest.fixture
async def through(database: str) -> AsyncIterator[tuple[Proxy, PostgresStore, PostgresStore]]:
    """The proxy, a store that goes through it, and one that does not."""
    async with AsyncExitStack() as stack:
        proxy, dsn = await stack.enter_async_context(proxied(database))
        lossy = await stack.enter_async_context(PostgresStore(dsn, connections=2))
        plain = await stack.enter_async_context(PostgresStore(database, connections=2))
        yield proxy, lossy, plain


Through = tuple[Proxy, PostgresStore, PostgresStore]


@pytest.mark.req("G-14")
async def test_a_claim_whose_reply_was_lost_is_healed_by_reap(through: Through) -> None:
    proxy, lossy, plain = through
    message = await m.enqueue(plain)
    proxy.lose_reply_to(b"claim_1")
    with pytest.raises(TransientFailure):
        await m.claim_all(lossy)
    assert proxy.cuts == 1
    assert await m.state_of(plain, message) == "leased"
    assert (await plain.reap(limit=10, now=m.at(m.LEASE_SECONDS + 1))).requeued == 1
    again = await m.claim_suspect(lossy, now=m.at(m.LEASE_SECONDS + 2))
    assert (again.id, again.number, again.spent) == (message, 2, 0)
    assert await m.conserved(plain)


@pytest.mark.req("G-14")
@pytest.mark.parametrize("settlement", [m.close(), m.retry(), m.park()], ids=["deliver", "retry", "park"])
async def test_a_settle_repeated_after_a_lost_reply_doubles_nothing(through: Through, settlement: Settlement) -> None:
    proxy, lossy, plain = through
    message = await m.enqueue(plain)
    claimed = await m.claim(lossy)
    proxy.lose_reply_to(b"redrive.settle")
    with pytest.raises(TransientFailure):
        await m.settle(lossy, claimed, settlement)
    before = await plain.history(message)
    again = await m.settle(lossy, claimed, settlement)
    assert (again.settled, again.refused, again.repeated) == (0, [], [claimed.fence])
    assert await plain.history(message) == before
    assert len(before) == 1
    assert await plain.rows("SELECT count(*) FROM redrive.late_answer", []) == [(0,)]
    assert await m.conserved(plain)


@pytest.mark.req("G-14")
async def test_a_record_whose_commit_reply_was_lost_is_not_written_twice(through: Through) -> None:
    proxy, lossy, plain = through
    async with plain.connection() as conn:
        await conn.execute("CREATE TABLE paid (message uuid)")
    await m.enqueue(plain)
    claimed = await m.claim(lossy)

    async def record(conn: Any, attempt: Attempt, settlement: Settlement) -> None:
        await conn.execute("INSERT INTO paid VALUES (%s)", [attempt.id])

    async def settle_one() -> Any:
        result = m.outcome(claimed, m.close())
        return await lossy.settle_one(m.WORKER, result, record, on_step=lambda _: None)

    proxy.lose_reply_to(b"COMMIT")
    with pytest.raises(TransientFailure):
        await settle_one()
    assert proxy.cuts == 1
    again = await settle_one()
    assert again.repeated == [claimed.fence]
    assert await plain.rows("SELECT count(*) FROM paid", []) == [(1,)]
    assert await m.conserved(plain)


@pytest.mark.req("G-02")
async def test_an_enqueue_repeated_after_a_lost_reply_finds_its_own_key(through: Through) -> None:
    proxy, lossy, plain = through
    proxy.lose_reply_to(b"enqueue_1")
    with pytest.raises(TransientFailure):
        await m.enqueue(lossy, key="order:7")
    result, message, _, state = await m.enqueue_row(lossy, key="order:7")
    assert (result, state) == ("duplicate", "pending")
    assert await plain.rows("SELECT id FROM redrive.message", []) == [(message,)]
