"""What enqueue and the reading of a history touch, and how many round trips a verb costs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any
from uuid import UUID

import psycopg
import pytest

from redrive.store.runtime.postgres import PostgresStore
from tests.support import bulk
from tests.support import messages as m
from tests.support.databases import fresh_database
from tests.support.proxy import Proxy, proxied
from tests.support.touched import touched

Connection = psycopg.Connection[Any]
ENQUEUE = "SELECT result FROM redrive.enqueue_1('mail', '\\x7b7d', %s)"


@pytest.fixture(scope="module")
def archive(server_dsn: str, template: str) -> Iterator[tuple[Connection, UUID]]:
    """20,000 closed messages, and one of them; several ranges of partitions."""
    with fresh_database(server_dsn, template=template) as dsn, psycopg.connect(dsn, autocommit=True) as connection:
        bulk.closed(connection, 20_000)
        connection.execute("ANALYZE")
        row = connection.execute("SELECT message_id FROM redrive.attempt OFFSET 10000 LIMIT 1").fetchone()
        assert row is not None
        yield connection, row[0]


Archive = tuple[Connection, UUID]


@pytest.mark.req("G-05")
@pytest.mark.parametrize("reading", ["history", "earlier_attempts", "state_of", "status"])
def test_the_history_of_a_message_is_read_from_one_partition(archive: Archive, reading: str) -> None:
    connection, id = archive
    queries = {
        "history": "SELECT count(*) FROM redrive.attempt WHERE message_id = %s",
        "earlier_attempts": "SELECT json_array_length(redrive.earlier_attempts(%s))",
        "status": "SELECT ((redrive.status_1(%s)).state = 'delivered')::integer",
        "state_of": "SELECT (redrive.state_of(%s) = 'delivered')::integer",
    }
    with touched(connection) as seen:
        assert connection.execute(queries[reading].encode(), [id]).fetchone() == (1,)
    partitions = {name for name in seen.scans if name.startswith("attempt")}
    assert len(partitions) == 1, partitions
    # earlier_attempts also looks for the end of each stage, however long ago that was.
    assert seen.of("attempt", seen.entries) == (2 if reading == "earlier_attempts" else 1)
    assert not seen.of("attempt", seen.scanned)


@pytest.mark.req("G-02")
@pytest.mark.req("G-03")
@pytest.mark.parametrize("key", ["order:1", "order:2"])
def test_a_duplicate_writes_nothing_and_takes_no_transaction_id(archive: Archive, key: str) -> None:
    connection, _ = archive
    connection.execute(ENQUEUE, [key])
    with touched(connection) as seen:
        assert connection.execute(ENQUEUE, [key]).fetchone() == ("duplicate",)
    assert not seen.wrote
    assert not seen.written


@pytest.mark.req("G-01")
def test_a_new_message_is_three_rows_and_scans_nothing(archive: Archive) -> None:
    connection, _ = archive
    with touched(connection) as seen:
        assert connection.execute(ENQUEUE, ["order:3"]).fetchone() == ("new",)
    assert seen.written.pop("idempotency") == seen.written.pop("pending") == 1
    assert list(seen.written.values()) == [1]
    assert set(seen.scanned) <= {"destination_owner"}  # a row for each system that owns destinations


@pytest.fixture
async def counted(database: str) -> AsyncIterator[tuple[Proxy, PostgresStore]]:
    """A store behind a proxy that counts the replies."""
    async with proxied(database) as (proxy, dsn), PostgresStore(dsn, connections=1) as store:
        await m.enqueue(store)
        yield proxy, store


@pytest.mark.req("G-06")
async def test_every_verb_is_one_round_trip(counted: tuple[Proxy, PostgresStore]) -> None:
    proxy, store = counted
    before = proxy.replies
    claimed = await m.claim(store)
    assert proxy.replies == before + 1
    await store.renew(m.WORKER, [claimed.fence], lease_seconds=60, now=m.START)
    assert proxy.replies == before + 2
    await m.settle(store, claimed, m.retry())
    assert proxy.replies == before + 3
    again = await m.claim(store)
    await m.settle(store, again, m.close())
    assert proxy.replies == before + 5
    await store.reap(limit=10)
    await store.cancel(again.id)
    assert proxy.replies == before + 7


@pytest.mark.req("G-06")
async def test_settling_many_outcomes_of_all_kinds_takes_two_round_trips(
    counted: tuple[Proxy, PostgresStore],
) -> None:
    proxy, store = counted
    for _ in range(29):
        await m.enqueue(store)
    attempts = (await m.claim_all(store)).attempts
    kinds = [m.close(), m.retry(), m.park()]
    outcomes = [m.outcome(attempt, kinds[n % 3]) for n, attempt in enumerate(attempts)]
    before = proxy.replies
    assert (await store.settle(m.WORKER, outcomes, now=m.START)).settled == 30
    assert proxy.replies == before + 2
