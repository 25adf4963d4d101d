"""`complete`, `acomplete`: a handler settles in its own transaction, and the relay believes the lease (ruling 16)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

import redrive
from redrive.answers import Answer, Retryable, Terminal
from redrive.app import App
from redrive.message import Attempt
from redrive.policy import Backoff, Policy
from redrive.store.runtime.postgres import PostgresStore
from tests.relay.harness import SECONDS_MAX, enqueue, history, relaying, states
from tests.support import messages as m

pytestmark = pytest.mark.req("G-27")

LATER = Policy(backoff=Backoff(initial_seconds=3600, max_seconds=3600, jitter="none"))


class RollBack(Exception): ...


@pytest.fixture
async def ledger(store: PostgresStore) -> PostgresStore:
    async with store.connection() as conn:
        await conn.execute("CREATE TABLE ledger (id uuid)")
    return store


def completing(app: App, dsn: str, inside: Callable[[psycopg.Connection[Any], Attempt], None]) -> None:
    """A plain handler that writes a row and completes in one transaction; `inside` comes between."""

    @app.destination("shop", policy=LATER)
    def handle(attempt: Attempt) -> str:
        with psycopg.connect(dsn) as conn:
            conn.execute("INSERT INTO ledger VALUES (%s)", [attempt.id])
            inside(conn, attempt)
        return "not an answer, and of no interest"


async def rows(store: PostgresStore) -> int:
    return int((await store.rows("SELECT count(*) FROM ledger", []))[0][0])


async def test_committed_is_closed_by_the_verb_complete_and_not_settled_again(
    database: str, ledger: PostgresStore, app: App
) -> None:
    completing(app, database, redrive.complete)
    (id,) = await enqueue(ledger)
    async with relaying(ledger, app) as relay:
        await relay.seen.until("is_leased.stop")
        await relay.seen.that(lambda: not relay.relay._leases.claims, what="the claim to be let go")
        assert relay.seen.of("settle.start") == []
    assert await history(ledger, id) == [("complete", "close", None)]
    assert await states(ledger) == {"delivered": 1}
    assert await rows(ledger) == 1


async def test_the_same_on_an_async_connection(database: str, ledger: PostgresStore, app: App) -> None:
    @app.destination("shop")
    async def handle(attempt: Attempt) -> None:
        async with await psycopg.AsyncConnection.connect(database) as conn:
            await redrive.acomplete(conn, attempt, redrive.Delivered("r-1", {"a": 1}))

    (id,) = await enqueue(ledger)
    async with relaying(ledger, app) as relay:
        await relay.seen.until("is_leased.stop")
    (entry,) = await ledger.history(id)
    assert (entry.verb, entry.reference, entry.result) == ("complete", "r-1", {"a": 1})


async def test_rolled_back_is_unknown(database: str, ledger: PostgresStore, app: App) -> None:
    """The other side may have been told already: nobody can tell."""

    def complete_and_fail(conn: psycopg.Connection[Any], attempt: Attempt) -> None:
        redrive.complete(conn, attempt)
        raise RollBack

    completing(app, database, complete_and_fail)
    (id,) = await enqueue(ledger)
    async with relaying(ledger, app) as relay:
        await relay.seen.until("message.retried", code="COMPLETE_ROLLED_BACK", in_doubt=True)
    assert await history(ledger, id) == [("settle", "retry", "COMPLETE_ROLLED_BACK")]
    assert await rows(ledger) == 0


@pytest.mark.parametrize(
    ("answer", "expected", "row"),
    [
        (Retryable("BUSY"), "pending", ("complete", "retry", "BUSY")),
        (Terminal("NO"), "parked·dead", ("complete", "park", "NO")),
    ],
)
async def test_any_answer_can_be_completed_with(
    database: str, ledger: PostgresStore, app: App, answer: Answer, expected: str, row: tuple[str, str, str]
) -> None:
    completing(app, database, lambda conn, attempt: redrive.complete(conn, attempt, answer))
    (id,) = await enqueue(ledger)
    async with relaying(ledger, app) as relay:
        await relay.seen.until("is_leased.stop")
    assert await states(ledger) == {expected: 1}
    assert await history(ledger, id) == [row]


async def test_a_claim_that_was_lost_raises_claim_lost_and_nothing_is_written(
    database: str, ledger: PostgresStore, app: App
) -> None:
    lost: list[redrive.ClaimLost] = []

    def lose_first(conn: psycopg.Connection[Any], attempt: Attempt) -> None:
        with psycopg.connect(database, autocommit=True) as other:
            other.execute("SELECT redrive.reap_1(10, %s)", [attempt.completion.worker])
        try:
            redrive.complete(conn, attempt)
        except redrive.ClaimLost as error:
            lost.append(error)
            raise

    completing(app, database, lose_first)
    (id,) = await enqueue(ledger)
    async with relaying(ledger, app) as relay:
        await relay.seen.until("is_leased.stop")
        await relay.seen.that(lambda: not relay.relay._leases.claims, what="the claim to be let go")
    assert f"Attempt 1 of message {id} is no longer ours" in str(lost[0])
    assert await states(ledger) == {"pending": 1}
    assert await rows(ledger) == 0
    assert [verb for verb, _, _ in await history(ledger, id)] == ["reap"]


@pytest.mark.req("G-31")
@pytest.mark.parametrize("open_ones", [1, 12])
async def test_transactions_that_stay_open_hold_up_no_other_settlement(
    database: str, ledger: PostgresStore, app: App, open_ones: int
) -> None:
    """They completed, timed out, and have not committed yet: their rows are locked, and only theirs."""
    completed, commit = threading.Semaphore(0), threading.Event()

    @app.destination("slow", timeout_seconds=1.5, concurrency=open_ones, policy=LATER)
    def slow(attempt: Attempt) -> None:
        with psycopg.connect(database) as conn:
            redrive.complete(conn, attempt)
            completed.release()
            commit.wait(SECONDS_MAX)

    @app.destination("shop")
    async def quick(attempt: Attempt) -> None: ...

    ids = await enqueue(ledger, open_ones, destination="slow")
    async with relaying(ledger, app) as relay:
        for _ in ids:
            await relay.seen.that(lambda: completed.acquire(blocking=False), what="one more to have completed")
        await relay.seen.until("settle.start")
        for count in (1, 2):
            await enqueue(ledger, 3)
            await relay.seen.until("message.delivered", count=3 * count, destination="shop")
        assert await states(ledger) == {"leased": open_ones, "delivered": 6}
        commit.set()
        await relay.seen.that(lambda: not relay.relay._leases.claims, what="the claims to be let go")
    assert [await history(ledger, id) for id in ids] == [[("complete", "close", None)]] * open_ones
    # All that the relay knew, of those whose settlement it tried once more after the commit.
    late = await ledger.rows("SELECT answer, code FROM redrive.late_answer", [])
    assert {tuple(row) for row in late} <= {("unknown", "COMPLETE_ROLLED_BACK")}


@pytest.mark.req("G-19")
async def test_an_attempt_that_no_relay_claimed_is_refused() -> None:
    class NoConnection:
        def execute(self, *arguments: object) -> None:
            raise AssertionError

    with pytest.raises(redrive.UsageError, match="not claimed by a relay"):
        redrive.complete(NoConnection(), m.attempt())
    with pytest.raises(redrive.UsageError, match="not claimed by a relay"):
        await redrive.acomplete(NoConnection(), m.attempt())
    assert asyncio.get_running_loop().is_running()


async def test_a_destination_with_a_lookup_completes_no_stage_that_it_has_not_declared(
    database: str, ledger: PostgresStore, app: App
) -> None:
    said: list[str] = []

    async def lookup(_: Attempt) -> redrive.Absent:
        return redrive.Absent()

    @app.destination("shop", policy=LATER, lookup=lookup)
    def handle(attempt: Attempt) -> None:
        with psycopg.connect(database) as conn:
            conn.execute("INSERT INTO ledger VALUES (%s)", [attempt.id])
            try:
                redrive.complete(conn, attempt, redrive.Advance("second"))
            except redrive.UsageError as error:
                said.append(str(error))
                conn.rollback()
                raise redrive.Retryable("UNDECLARED") from None

    await enqueue(ledger)
    async with relaying(ledger, app) as relay:
        await relay.seen.until("message.retried")
    assert "staged=True" in said[0]
    assert await rows(ledger) == 0
