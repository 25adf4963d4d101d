"""A crash of the server empties the table that says what a rate has let out: the rate waits for that second."""

from __future__ import annotations

from datetime import timedelta

import pytest

from redrive.store.runtime.postgres import PostgresStore
from tests.support import messages as m


@pytest.mark.req("G-25")
async def test_a_rate_waits_for_a_second_when_the_server_was_just_started(store: PostgresStore) -> None:
    ((ready,),) = await store.rows("SELECT redrive.server_ready_at()", [])
    insert = "INSERT INTO redrive.destination (name, rate_per_second) VALUES (%s, 2) RETURNING 1"
    await store.rows(insert, [m.DESTINATION])
    for _ in range(5):
        await m.enqueue(store)
    await store.rows("UPDATE redrive.pending SET due_at = %s RETURNING 1", [ready - timedelta(hours=1)])

    async def claimed(seconds: float) -> int:
        return len((await m.claim_all(store, now=ready + timedelta(seconds=seconds))).attempts)

    assert [await claimed(seconds) for seconds in (0.0, 1.0, 1.1, 1.2, 2.2)] == [0, 0, 2, 0, 2]
