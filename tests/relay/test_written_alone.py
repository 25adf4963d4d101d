"""An outcome that is written alone is in hand until it is written: it holds up its own destination, no other (G-09)."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest

from redrive.app import App
from redrive.message import Attempt
from redrive.policy import Backoff, Policy, Settlement
from redrive.relay.claiming import claimer
from redrive.relay.settling.settle import RECORDS_AT_ONCE
from redrive.store.runtime.postgres import PostgresStore
from tests.relay.harness import enqueue, relaying, states

pytestmark = pytest.mark.req("G-09")

IN_HAND = 6  # slots, and with no horizon the target too
LATER = Policy(backoff=Backoff(initial_seconds=3600, max_seconds=3600, jitter="none"))


async def leased(store: PostgresStore, destination: str) -> int:
    rows = await store.rows("SELECT count(*) FROM redrive.lease WHERE destination = %s", [destination])
    return int(rows[0][0])


async def quick(attempt: Attempt) -> None: ...


@pytest.mark.req("G-27")
async def test_a_slow_record_claims_no_more_than_the_target_and_the_others_go_on(
    store: PostgresStore, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claimer, "UNSETTLED_MAX", RECORDS_AT_ONCE)  # fewer than there will be records
    sent: list[str] = []
    go_on = asyncio.Event()

    async def wait(conn: Any, attempt: Attempt, settlement: Settlement) -> None:
        await go_on.wait()

    @app.destination("booked", concurrency=IN_HAND, record=wait)
    async def handle(attempt: Attempt) -> None:
        sent.append(attempt.key or "")

    app.destination("quick")(quick)
    await enqueue(store, 40, destination="booked")
    async with relaying(store, app, lease_seconds=60, horizon_seconds=0) as relay:
        await relay.seen.that(lambda: len(sent) >= IN_HAND, what="as many to be sent as may be in hand")
        await relay.seen.until("record.start", count=RECORDS_AT_ONCE)
        await enqueue(store, 100, destination="quick")
        await relay.seen.until("message.delivered", count=100, destination="quick")
        assert (len(sent), await leased(store, "booked")) == (IN_HAND, IN_HAND)
        assert relay.seen.of("message.delivered", destination="booked") == []
        go_on.set()
        await relay.seen.until("message.delivered", count=40, destination="booked")
    assert await states(store) == {"delivered": 140}


@pytest.mark.req("G-27")
@pytest.mark.req("G-31")
async def test_records_of_one_destination_that_hang_hold_up_those_of_no_other(store: PostgresStore, app: App) -> None:
    """There are places for a few records at a time: those that hang leave half of them to the next destination."""
    go_on = asyncio.Event()

    async def wait(conn: Any, attempt: Attempt, settlement: Settlement) -> None:
        await go_on.wait()

    async def record(conn: Any, attempt: Attempt, settlement: Settlement) -> None: ...

    app.destination("hangs", concurrency=50, record=wait)(quick)
    app.destination("booked", record=record)(quick)
    await enqueue(store, 30, destination="hangs")
    async with relaying(store, app, lease_seconds=120, record_timeout_seconds=60) as relay:
        await relay.seen.until("record.start", count=RECORDS_AT_ONCE)
        await enqueue(store, 20, destination="booked")
        await relay.seen.until("message.delivered", count=20, destination="booked")
        assert relay.seen.of("message.delivered", destination="hangs") == []
        go_on.set()
        await relay.seen.until("message.delivered", count=30, destination="hangs")
    assert await states(store) == {"delivered": 50}


@pytest.mark.req("G-27")
@pytest.mark.req("G-31")
async def test_outcomes_that_wait_for_a_lock_are_bounded_by_their_destination_and_stop_the_claims_of_no_other(
    store: PostgresStore, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A producer holds an ordering key open for hours: what waits for it must not add up to a relay that is idle."""
    most = 10
    monkeypatch.setattr(claimer, "UNSETTLED_MAX", most - 1)
    free = False

    async def wait(conn: Any, attempt: Attempt, settlement: Settlement) -> None:
        if not free:
            raise psycopg.errors.LockNotAvailable

    app.destination("follows", concurrency=3, record=wait)(quick)
    app.destination("quick")(quick)
    await enqueue(store, 3 * most, destination="follows")
    async with relaying(store, app, lease_seconds=60, claim_max=most) as relay:
        await relay.seen.that(lambda: relay.relay._settler.busy >= most, what="as many to wait as may be claimed")
        await enqueue(store, 100, destination="quick")
        await relay.seen.until("message.delivered", count=100, destination="quick")
        assert (relay.relay._settler.busy, await leased(store, "follows")) == (most, most)
        free = True
        await relay.seen.until("message.delivered", count=3 * most, destination="follows")
    assert await states(store) == {"delivered": 100 + 3 * most}


async def test_a_claim_that_its_own_handler_keeps_locked_counts_as_in_hand(
    database: str, store: PostgresStore, app: App
) -> None:
    """Cut off, its outcome waits for a row that somebody holds in a transaction: no further claim follows from that."""
    locked: list[Attempt] = []
    locks = True
    async with await psycopg.AsyncConnection.connect(database) as held:

        @app.destination("stuck", concurrency=IN_HAND, timeout_seconds=0.2, policy=LATER)
        async def handle(attempt: Attempt) -> None:
            if locks:
                await asyncio.shield(held.execute("SELECT 1 FROM redrive.lease WHERE id = %s FOR UPDATE", [attempt.id]))
                locked.append(attempt)
                await asyncio.Event().wait()

        app.destination("quick")(quick)
        await enqueue(store, 40, destination="stuck")
        async with relaying(store, app, lease_seconds=60, horizon_seconds=0) as relay:
            await relay.seen.until("dispatch.exception", count=IN_HAND)
            await relay.seen.until("settle.stop", busy=1, count=IN_HAND)
            await enqueue(store, 100, destination="quick")
            await relay.seen.until("message.delivered", count=100)
            assert (len(locked), await leased(store, "stuck")) == (IN_HAND, IN_HAND)
            locks = False
            await held.rollback()
            await relay.seen.until("message.retried", count=IN_HAND, code="TIMEOUT", in_doubt=True)
            await relay.seen.until("message.delivered", count=100 + 40 - IN_HAND)
    assert await states(store) == {"delivered": 100 + 40 - IN_HAND, "pending": IN_HAND}
