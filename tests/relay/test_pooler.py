"""A relay behind PgBouncer: it finds out that it hears nothing, and goes on (G-08)."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from redrive.app import App
from redrive.message import Attempt
from redrive.relay import listening
from redrive.store import migrate
from redrive.store.postgres import PostgresStore
from tests.conftest import CrashServer
from tests.relay.harness import enqueue, relaying
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
    monkeypatch.setattr(listening, "PROBE_ANSWER_SECONDS", 0.5)
    with pgbouncer(direct, "transaction") as pooled:
        async with relaying(store, shop(app), listen_dsn=pooled) as relay:
            await relay.seen.until("listener.deaf")
            await enqueue(store)
            await relay.seen.until("message.delivered")


async def test_behind_a_pooler_that_lends_by_session_it_hears(store: PostgresStore, app: App, direct: str) -> None:
    with pgbouncer(direct, "session") as pooled:
        async with relaying(store, shop(app), listen_dsn=pooled, poll_seconds=60.0, lease_seconds=100.0) as relay:
            await relay.seen.until("doze.stop")
            await enqueue(store)
            await relay.seen.until("message.delivered")
