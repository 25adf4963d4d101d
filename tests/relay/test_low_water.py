"""A relay beside a transaction that stays open: it begins where something can be, and now and then looks everywhere."""

from __future__ import annotations

from datetime import datetime

import psycopg
import pytest

from redrive.app import App
from redrive.message import Attempt
from redrive.ports import Place
from redrive.relay.claiming import low_water
from redrive.relay.wakeup.poll_schedule import STEPS_SECONDS
from redrive.store.runtime.postgres import PostgresStore
from tests.relay.harness import Running, enqueue, relaying

pytestmark = pytest.mark.req("G-08")

SHOP = Place("shop", 1)


@pytest.fixture(autouse=True)
def _every_walk_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that every place has its mark, however few dead rows there are."""
    monkeypatch.setattr(low_water, "LONG_SECONDS", 0.0)


def shop(app: App) -> App:
    @app.destination("shop")
    async def handle(attempt: Attempt) -> None: ...

    return app


async def until_marked_after(relay: Running, moment: datetime) -> None:
    marks = relay.relay._low_water
    await relay.seen.that(lambda: marks.marks.get(SHOP, moment) > moment, what="the mark to move on")


async def test_a_message_that_is_committed_below_the_mark_is_found_by_the_next_whole_look(
    database: str, store: PostgresStore, app: App
) -> None:
    async with relaying(store, shop(app)) as relay:
        with psycopg.connect(database) as conn:
            row = conn.execute("SELECT (redrive.enqueue_1('shop', '{}')).id, clock_timestamp()").fetchone()
            assert row is not None
            await until_marked_after(relay, row[1])
            await enqueue(store, 3)
            await relay.seen.until("message.delivered", count=3)
        await relay.seen.until("message.delivered", id=row[0])


async def test_what_waits_is_never_skipped_by_a_mark(store: PostgresStore, app: App) -> None:
    """Pausing keeps it waiting while the marks of a long time pass."""
    await enqueue(store, 5)
    await store.pause("shop", actor="ann", reason="down")
    async with relaying(store, shop(app)) as relay:
        await relay.seen.until("low_water.stop", count=3)
        await store.resume("shop", actor="ann", reason="up")
        await relay.seen.until("message.delivered", count=5)


async def test_the_whole_look_calls_for_a_claim_however_seldom_the_relay_polls(
    database: str, store: PostgresStore, app: App
) -> None:
    async with relaying(store, shop(app), poll_seconds=60) as relay:
        with psycopg.connect(database) as conn:
            row = conn.execute("SELECT (redrive.enqueue_1('shop', '{}')).id, clock_timestamp()").fetchone()
            assert row is not None
            await until_marked_after(relay, row[1])
            await relay.seen.until("relay.idle", count=len(STEPS_SECONDS) + 1)  # from now on it polls
        await relay.seen.until("message.delivered", id=row[0])
