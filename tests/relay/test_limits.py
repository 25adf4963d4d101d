"""Limits that hold over all relays, with two of them on one real database (G-25)."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import psycopg
import pytest

from redrive.app import App
from redrive.message import Attempt
from redrive.store.runtime.postgres import PostgresStore
from tests.relay.harness import Gate, Running, enqueue, relaying, states

pytestmark = pytest.mark.req("G-25")


async def two_relays(stack: AsyncExitStack, store: PostgresStore, app: App) -> list[Running]:
    return [await stack.enter_async_context(relaying(store, app)) for _ in range(2)]


async def delivered(relays: list[Running], count: int) -> None:
    """By both together."""
    seen = relays[0].seen
    await seen.that(
        lambda: sum(len(relay.seen.of("message.delivered")) for relay in relays) >= count,
        what=f"{count} to be delivered",
    )


async def test_two_relays_together_keep_to_the_rate(store: PostgresStore, app: App) -> None:
    """By what the database wrote down: in no stretch of time more than a second's worth and what the stretch gives."""

    @app.destination("shop", rate=50)
    async def handle(attempt: Attempt) -> None: ...

    await enqueue(store, 120)
    async with AsyncExitStack() as stack:
        await delivered(await two_relays(stack, store, app), 120)
    rows = await store.rows(
        "SELECT extract(epoch FROM claimed_at)::float8, count(*) FROM redrive.attempt GROUP BY 1 ORDER BY 1", []
    )
    claims = [(float(at), int(count)) for at, count in rows]
    for first, (since, _) in enumerate(claims):
        taken = 0
        for until, count in claims[first:]:
            taken += count
            assert taken <= 50 + 50 * (until - since) + 1e-6, f"{taken} within {until - since:.3f} s"
    workers = await store.rows("SELECT count(DISTINCT worker) FROM redrive.attempt", [])
    assert workers[0][0] == 2


async def test_the_rest_of_a_relay_does_not_wait_for_a_rate(store: PostgresStore, app: App) -> None:
    @app.destination("slow", rate=0.01)
    async def slow(attempt: Attempt) -> None: ...

    @app.destination("shop")
    async def handle(attempt: Attempt) -> None: ...

    await enqueue(store, 5, destination="slow")
    await enqueue(store, 200)
    async with relaying(store, app) as relay:
        await relay.seen.until("message.delivered", count=200, destination="shop")
        await relay.seen.until("message.delivered", count=1, destination="slow")
    assert await states(store) == {"delivered": 201, "pending": 4}
    rows = await store.rows("SELECT count(*) FROM redrive.attempt WHERE destination = 'slow' AND verb <> 'settle'", [])
    assert rows[0][0] == 0, "nothing was claimed that could not go"


async def test_two_relays_together_have_no_more_in_flight_than_the_limit(
    database: str, store: PostgresStore, app: App
) -> None:
    gate = Gate()

    @app.destination("shop", concurrency=8, global_concurrency=5)
    async def handle(attempt: Attempt) -> None:
        await gate(attempt.id)

    await enqueue(store, 300)
    async with AsyncExitStack() as stack:
        in_flight = asyncio.create_task(most_leases(database))
        relays = await two_relays(stack, store, app)
        await relays[0].seen.that(lambda: gate.inside == 5, what="five to run")
        looks = sum(len(relay.seen.of("claim.stop")) for relay in relays)  # one that has all five does not look again
        await relays[0].seen.that(
            lambda: sum(len(relay.seen.of("claim.stop")) for relay in relays) >= looks + 3, what="three more looks"
        )
        assert gate.inside == 5
        gate.open()
        await delivered(relays, 300)
        in_flight.cancel()
    assert gate.most == 5
    assert await in_flight <= 5


async def most_leases(dsn: str) -> int:
    """Whoever looks from outside, as often as it can, until cancelled: how many there were at once."""
    most = 0
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as conn:
        try:
            while True:
                (count,) = await (await conn.execute("SELECT count(*) FROM redrive.lease")).fetchone() or (0,)
                most = max(most, count)
        except asyncio.CancelledError:
            return most


async def test_a_limited_relay_takes_no_more_in_hand_than_it_can_begin(store: PostgresStore, app: App) -> None:
    gate = asyncio.Event()

    @app.destination("shop", concurrency=3, global_concurrency=100)
    async def handle(attempt: Attempt) -> None:
        await gate.wait()

    await enqueue(store, 50)
    async with relaying(store, app, horizon_seconds=10) as relay:
        relay.relay._queues["shop"].capacity.latency_seconds = 0.001
        await relay.seen.until("send.start", count=3)
        await relay.seen.next("heartbeat.stop", count=2)
        assert len(relay.relay._leases.claims) == 3
        gate.set()
        await relay.seen.until("message.delivered", count=50)
