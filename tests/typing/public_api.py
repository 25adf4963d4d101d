"""Uses of the public names that a type checker must accept as they stand; never run, only read by mypy --strict."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, TypedDict, assert_type

import psycopg

import redrive
from redrive import Attempt, Backoff, Policy, Receipt
from redrive.patterns.pipelines import Pipeline, Results
from redrive.ports import Store

app = redrive.App()


@app.destination("welcome-mail")
async def welcome(message: Attempt) -> None:
    assert_type(message.token, str)
    assert_type(message.in_doubt, bool)
    assert_type(message.number, int)


@app.destination("erp", concurrency=5, timeout_seconds=10)
def push(message: Attempt) -> redrive.Delivered | redrive.Retryable:
    if message.payload is None:
        return redrive.Retryable("BUSY", retry_after=30)
    return redrive.Delivered("reference", {"answer": 42})


async def find(message: Attempt) -> redrive.Found | redrive.Absent | redrive.CannotTell:
    return redrive.Found("reference") if message.in_doubt else redrive.Absent()


def check(message: Attempt) -> None:
    if not message.body:
        raise redrive.Terminal("EMPTY")


async def book(conn: psycopg.AsyncConnection[Any], message: Attempt, settlement: redrive.Settlement) -> None:
    await conn.execute("SELECT 1", [message.id, settlement.kind])


def too_slow(error: BaseException) -> redrive.Unknown:
    return redrive.Unknown("TOO_SLOW", text=type(error).__name__)


@app.destination(
    "bank",
    policy=Policy(attempts=3, backoff=Backoff(initial_seconds=1, max_seconds=60, jitter=0.2)),
    lookup=find,
    validate=check,
    record=book,
    in_doubt="lookup",
    on_dead="continue_on_terminal",
    lookup_after_seconds=30,
    token_ttl_seconds=86_400,
    money=True,
    classify={ValueError: redrive.Terminal("INVALID"), TimeoutError: too_slow},
)
async def pay(message: Attempt) -> redrive.Delivered | redrive.Advance:
    return redrive.Advance("second", {"paid": True}, destination="erp")


@app.duty("sweep", every_seconds=60)
async def sweep(store: Store) -> str:
    return str(await store.expire(limit=10))


# A decorator hands back what it was given, with its type.
def call(message: Attempt) -> None:
    assert_type(push(message), redrive.Delivered | redrive.Retryable)
    assert_type(message.history(), tuple[redrive.HistoryEntry, ...])


def sign_up(conn: psycopg.Connection[Any], email: str) -> Receipt:
    receipt = redrive.enqueue(
        conn,
        "welcome-mail",
        {"to": email},
        key=redrive.key(tenant="t", category="mail", entity=email, kind="welcome"),
        tenant="t",
        kind="welcome",
        due_at=datetime.now(UTC),
        expires_at=None,
        priority="high",
        headers={"a": "b"},
        on_other_payload="first_wins",
    )
    assert_type(receipt.id, redrive.MessageId)
    assert_type(receipt.already_existed, bool)
    assert_type(receipt.sequence, int | None)
    assert_type(receipt.state, str)
    return receipt


async def sign_up_many(conn: psycopg.AsyncConnection[Any], addresses: Sequence[str]) -> list[Receipt]:
    await redrive.aenqueue(conn, "welcome-mail", b"bytes too", priority=redrive.Priority.LOW)
    return list(await redrive.aenqueue_many(conn, [redrive.NewMessage("welcome-mail", {"to": a}) for a in addresses]))


def finish(conn: psycopg.Connection[Any], message: Attempt) -> None:
    try:
        redrive.complete(conn, message)
        redrive.complete(conn, message, redrive.Delivered("reference"))
    except redrive.ClaimLost as lost:
        assert_type(lost.code, str)


async def afinish(conn: psycopg.AsyncConnection[Any], message: Attempt) -> None:
    await redrive.acomplete(conn, message, redrive.Retryable("LATER"))


system = redrive.System(name="shop", destinations=list(app.destinations.values()), duties=list(app.duties.values()))
app.include(system)


def follow(conn: psycopg.Connection[Any], receipt: Receipt) -> None:
    assert_type(redrive.status(conn, receipt.id), redrive.Status)
    assert_type(redrive.wait(conn, key="order:1", timeout_seconds=5).result, Any)
    assert_type(redrive.cancel(conn, str(receipt.id)), redrive.CancelAnswer)


async def follow_async(conn: psycopg.AsyncConnection[Any], receipt: Receipt) -> None:
    assert_type(await redrive.astatus(conn, receipt.id), redrive.Status)
    assert_type((await redrive.wait_async(conn, receipt.id)).is_finished, bool)
    assert_type(await redrive.acancel(conn, key="order:1", tenant="acme"), redrive.CancelAnswer)


class Parcel(TypedDict):
    weight: int


@app.destination("parcels", schema=Parcel)
def pack(message: Attempt[Parcel]) -> None:
    assert_type(message.data, Parcel)
    assert_type(message.data["weight"], int)


def anything(message: Attempt) -> None:
    assert_type(message.data, Any)


def typed(conn: psycopg.Connection[Any]) -> None:
    assert_type(app.enqueue(conn, "parcels", Parcel(weight=1), key="k", priority="high"), Receipt)


pipeline = Pipeline("videos", schema=dict)


@pipeline.stage("import", policy=Policy(attempts=5), timeout_seconds=600)
def import_(message: Attempt, results: Results) -> dict[str, str]:
    return {"file": f"{message.token}.mov"}


assert_type(pipeline.name, str)


@pipeline.stage("publish", validate=import_, record=book, in_doubt="hold")
async def publish(message: Attempt, results: Results) -> redrive.Retryable | None:
    return redrive.Retryable("BUSY") if results["import"] is None else None


async def start(conn: psycopg.Connection[Any], other: psycopg.AsyncConnection[Any]) -> None:
    pipeline.removed("old")
    assert_type(pipeline.destination_name("import"), str)
    assert_type(pipeline.start(conn, {}, key="video-7"), Receipt)
    assert_type(await pipeline.astart(other, {}), Receipt)
    for destination in pipeline.destinations():
        app.add(destination)
