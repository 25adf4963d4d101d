"""`record`: your rows and our settlement in one transaction; whatever fails in it, nothing is sent again (G-27)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any
from uuid import UUID

import psycopg
import pytest

from redrive.answers import Delivered
from redrive.app import App
from redrive.message import Attempt
from redrive.policy import Settlement
from redrive.store.runtime.postgres import PostgresStore
from tests.relay.harness import enqueue, history, relaying, states

pytestmark = pytest.mark.req("G-27")

BY: dict[str, Any] = {"actor": "ada", "reason": "repaired"}
Writes = Callable[[Any, Attempt, Settlement], Awaitable[None]]


@pytest.fixture
async def ledger(store: PostgresStore) -> PostgresStore:
    async with store.connection() as conn:
        await conn.execute("CREATE TABLE ledger (id uuid UNIQUE DEFERRABLE INITIALLY DEFERRED, reference text)")
    return store


async def write(conn: Any, attempt: Attempt, settlement: Settlement) -> None:
    reference = getattr(settlement.answer, "reference", None)
    await conn.execute("INSERT INTO ledger VALUES (%s, %s)", [attempt.id, reference])


async def written(store: PostgresStore) -> list[tuple[UUID, str]]:
    return [tuple(row) for row in await store.rows("SELECT id, reference FROM ledger ORDER BY id", [])]


class Calls:
    """Handler calls, and a record that fails in the given way as long as it is broken."""

    def __init__(self, app: App, failing: Writes | None = None, **options: Any) -> None:
        self.sent: list[UUID] = []
        self.recorded = 0
        self.broken = failing is not None

        async def record(conn: Any, attempt: Attempt, settlement: Settlement) -> None:
            self.recorded += 1
            await write(conn, attempt, settlement)
            if self.broken and failing is not None:
                await failing(conn, attempt, settlement)

        @app.destination("shop", record=record, **options)
        async def handle(attempt: Attempt) -> Delivered:
            self.sent.append(attempt.id)
            return Delivered(f"ref-{attempt.number}")


async def test_rows_and_settlements_commit_together_each_message_by_itself(ledger: PostgresStore, app: App) -> None:
    async def fail_sometimes(conn: Any, attempt: Attempt, settlement: Settlement) -> None:
        if attempt.payload["bad"]:
            raise LookupError("no such account")

    calls = Calls(app, fail_sometimes)
    good = await enqueue(ledger, 10, body=b'{"bad":false}')
    (bad,) = await enqueue(ledger, body=b'{"bad":true}')
    async with relaying(ledger, app) as relay:
        await relay.seen.until("message.delivered", count=10)
        await relay.seen.until("message.parked", reason="unrecorded")
        assert len(relay.seen.of("settle_one.start")) == 11
    assert await states(ledger) == {"delivered": 10, "parked·unrecorded": 1}
    assert await written(ledger) == sorted((id, "ref-1") for id in good)
    assert sorted(calls.sent) == sorted([*good, bad])


async def raise_plainly(conn: Any, attempt: Attempt, settlement: Settlement) -> None:
    raise LookupError("no such account")


async def leave(conn: Any, attempt: Attempt, settlement: Settlement) -> None:
    raise SystemExit(1)


async def violate(conn: Any, attempt: Attempt, settlement: Settlement) -> None:
    """A constraint that is looked at only when the transaction commits."""
    await write(conn, attempt, settlement)


async def abort(conn: Any, attempt: Attempt, settlement: Settlement) -> None:
    with suppress(psycopg.errors.DivisionByZero):
        await conn.execute("SELECT 1 / 0")


async def end(conn: Any, attempt: Attempt, settlement: Settlement) -> None:
    await conn.execute("ROLLBACK")


async def hang(conn: Any, attempt: Attempt, settlement: Settlement) -> None:
    await conn.execute("SELECT pg_sleep(60)")


async def never(conn: Any, attempt: Attempt, settlement: Settlement) -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("failing", "code"),
    [
        (raise_plainly, "RECORD_FAILED"),
        (leave, "RECORD_FAILED"),
        (violate, "RECORD_FAILED"),
        (abort, "RECORD_FAILED"),
        (end, "RECORD_FAILED"),
        (hang, "RECORD_TIMEOUT"),
        (never, "RECORD_TIMEOUT"),
    ],
)
async def test_failed_for_good_is_unrecorded_until_it_is_repaired_and_never_sent_again(
    ledger: PostgresStore, app: App, failing: Writes, code: str
) -> None:
    calls = Calls(app, failing)
    (id,) = await enqueue(ledger)
    async with relaying(ledger, app, record_timeout_seconds=0.3) as relay:
        await relay.seen.until("message.parked", reason="unrecorded", code=code)
        assert await written(ledger) == []
        assert await states(ledger) == {"parked·unrecorded": 1}
        ((kept,),) = await ledger.rows("SELECT kept_answer FROM redrive.parked", [])
        assert kept == {"answer": "delivered", "reference": "ref-1", "result": None}
        calls.broken = False
        await ledger.repair(id, **BY)
        await relay.seen.until("message.delivered")
    assert calls.sent == [id]
    assert await written(ledger) == [(id, "ref-1")]
    assert [verb for verb, _, _ in await history(ledger, id)] == ["settle", "repair", "settle"]


@pytest.mark.parametrize("error", [psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure])
async def test_what_a_retry_can_mend_is_run_again_and_not_sent_again(
    ledger: PostgresStore, app: App, error: type[Exception]
) -> None:
    async def lose(conn: Any, attempt: Attempt, settlement: Settlement) -> None:
        calls.broken = calls.recorded < 3
        if calls.broken:
            raise error("chosen as the victim")

    calls = Calls(app, lose)
    (id,) = await enqueue(ledger)
    async with relaying(ledger, app) as relay:
        await relay.seen.until("message.delivered")
    assert (calls.sent, calls.recorded) == ([id], 3)
    assert await written(ledger) == [(id, "ref-1")]
    assert await history(ledger, id) == [("settle", "close", None)]


async def test_a_connection_that_is_lost_in_the_middle_is_run_again_and_not_sent_again(
    ledger: PostgresStore, app: App
) -> None:
    async def cut(conn: Any, attempt: Attempt, settlement: Settlement) -> None:
        calls.broken = False
        await conn.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    calls = Calls(app, cut)
    (id,) = await enqueue(ledger)
    async with relaying(ledger, app) as relay:
        await relay.seen.until("message.delivered")
    assert (calls.sent, calls.recorded) == ([id], 2)
    assert await written(ledger) == [(id, "ref-1")]


async def test_one_record_that_waits_holds_up_nobody(ledger: PostgresStore, app: App) -> None:
    stuck, go_on = asyncio.Event(), asyncio.Event()

    async def wait(conn: Any, attempt: Attempt, settlement: Settlement) -> None:
        if attempt.payload["slow"]:
            stuck.set()
            await go_on.wait()

    Calls(app, wait)
    await enqueue(ledger, body=b'{"slow":true}')
    async with relaying(ledger, app, record_timeout_seconds=30) as relay:
        async with asyncio.timeout(5):
            await stuck.wait()
        await enqueue(ledger, 5, body=b'{"slow":false}')
        await relay.seen.until("message.delivered", count=5)
        go_on.set()
        await relay.seen.until("message.delivered", count=6)
