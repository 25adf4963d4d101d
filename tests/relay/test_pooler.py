"""A relay behind PgBouncer: it finds out that it hears nothing, and goes on (G-08)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from redrive.answers import Retryable
from redrive.app import App
from redrive.message import Attempt
from redrive.policy import Backoff, Policy, Settlement
from redrive.relay.wakeup import listening
from redrive.store.migrations import migrate
from redrive.store.runtime.postgres import PostgresStore
from tests.conftest import CrashServer
from tests.relay.harness import enqueue, processing, relaying, states
from tests.support.poolers import pgbouncer

pytestmark = [pytest.mark.req("G-08"), pytest.mark.full]


@pytest.fixture
def direct(crash_server: CrashServer) -> str:
    """A server that a pooler can reach whoever it runs as."""
    dsn = crash_server(port=0).dsn
    migrate.upgrade(dsn)
    return dsn


@pytest.fixture
async def store(direct: str) -> AsyncIterator[PostgresStore]:
    async with PostgresStore(direct, connections=4) as opened:
        yield opened


def shop(app: App) -> App:
    @app.destination("shop")
    async def handle(attempt: Attempt) -> None: ...

    return app


async def test_behind_a_pooler_that_lends_by_transaction_it_is_deaf_and_polls(
    store: PostgresStore, app: App, direct: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "ECHO_ANSWER_SECONDS", 0.5)
    with pgbouncer(direct, "transaction") as pooled:
        async with relaying(store, shop(app), listen_dsn=pooled) as relay:
            await relay.seen.until("listener.deaf")
            await enqueue(store)
            await relay.seen.until("message.delivered")


async def test_behind_a_pooler_that_lends_by_session_it_hears(store: PostgresStore, app: App, direct: str) -> None:
    with pgbouncer(direct, "session") as pooled:
        async with relaying(store, shop(app), listen_dsn=pooled, poll_seconds=60.0, lease_seconds=100.0) as relay:
            await relay.seen.until("announce_idle.stop")
            await enqueue(store)
            await relay.seen.until("message.delivered")


async def test_all_of_a_relay_works_through_a_pooler_in_transaction_mode(
    store: PostgresStore, app: App, direct: str
) -> None:
    """Verbs, records, duties and heartbeats; only what listens needs a connection of its own."""
    async with store.connection() as connection:
        await connection.execute("CREATE TABLE recorded (id uuid PRIMARY KEY)")

    async def record(conn: Any, attempt: Attempt, _: Settlement) -> None:
        await conn.execute("INSERT INTO recorded VALUES (%s)", [attempt.id])

    @app.destination("shop", record=record)
    async def handle(attempt: Attempt) -> None:
        if attempt.number == 1 and attempt.body == b'"again"':
            raise Retryable("HTTP_503")

    app.destination("plain", policy=Policy(backoff=Backoff(initial_seconds=0, max_seconds=0, jitter="none")))(handle)
    with pgbouncer(direct, "transaction") as pooled:
        async with processing(pooled, app) as seen:
            await enqueue(store, 60)
            await enqueue(store, 200, destination="plain")
            await enqueue(store, 40, destination="plain", body=b'"again"')
            await seen.until("message.delivered", count=300)
            await seen.until("heartbeat.stop", count=3)
            await seen.until("duty.stop", count=3)
    assert await states(store) == {"delivered": 300}
    assert await store.rows("SELECT count(*) FROM recorded", []) == [(60,)]
