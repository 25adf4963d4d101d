"""Misuses of the public names that a type checker must reject, each with the code that stands beside it.

mypy --strict reports an ignore that was not needed, or one of another code: accepting any of these lines is an error.
Never run, only read.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg

import redrive
from redrive import Attempt, Policy, Settlement
from redrive.patterns.pipelines import Pipeline

app = redrive.App()
pipeline = Pipeline("videos")


async def handler(message: Attempt) -> None: ...


def no_attempt(message: int) -> None: ...


def plain_record(conn: Any, attempt: Attempt, settlement: Settlement) -> None: ...


async def short_record(conn: Any, attempt: Attempt) -> None: ...


async def work_without_store() -> str:
    return ""


@dataclass
class Parcel:
    weight: int


def misuse(conn: psycopg.Connection[Any], message: Attempt, typed: Attempt[Parcel], due_at: datetime) -> None:
    app.destination()(handler)  # type: ignore[call-arg]
    app.destination(5)(handler)  # type: ignore[arg-type]
    app.destination("x")(no_attempt)  # type: ignore[type-var]
    app.destination("x", in_doubt="ask")(handler)  # type: ignore[arg-type]
    app.destination("x", on_dead="stop")(handler)  # type: ignore[arg-type]
    app.destination("x", policy=3)(handler)  # type: ignore[arg-type]
    app.destination("x", retries=3)(handler)  # type: ignore[call-arg]
    app.destination("x", record=plain_record)(handler)  # type: ignore[arg-type]
    app.destination("x", record=short_record)(handler)  # type: ignore[arg-type]
    app.destination("x", classify={ValueError: "TERMINAL"})(handler)  # type: ignore[dict-item]
    app.destination("x", classify={"ValueError": redrive.Terminal("X")})(handler)  # type: ignore[dict-item]
    app.duty("x")  # type: ignore[call-arg]
    app.duty("x", every_seconds=1)(work_without_store)  # type: ignore[arg-type]
    redrive.Retryable()  # type: ignore[call-arg]
    redrive.Advance()  # type: ignore[call-arg]
    redrive.Retryable("X", retry_after=due_at)  # type: ignore[arg-type]
    redrive.Delivered(reference=5)  # type: ignore[arg-type]
    Policy(3)  # type: ignore[call-arg]
    Policy(attempts="3")  # type: ignore[arg-type]
    redrive.Backoff(jitter="some")  # type: ignore[arg-type]
    redrive.enqueue(conn, "x")  # type: ignore[call-arg]
    redrive.enqueue(conn, "x", {}, "key")  # type: ignore[call-arg]
    redrive.enqueue(conn, "x", {}, due_at="tomorrow")  # type: ignore[arg-type]
    redrive.enqueue(conn, "x", {}, on_other_payload="replace")  # type: ignore[arg-type]
    redrive.enqueue_many(conn, [("x", {})])  # type: ignore[list-item]
    redrive.complete(conn, message, "delivered")  # type: ignore[arg-type]
    redrive.complete(conn, message.id)  # type: ignore[arg-type]
    app.enqueue(conn, "x", {}, keys="k")  # type: ignore[call-arg]
    typed.data.wieght  # type: ignore[attr-defined]  # noqa: B018
    message.number = 2  # type: ignore[misc]
    message.secret  # type: ignore[attr-defined]  # noqa: B018
    redrive.no_such_name  # type: ignore[attr-defined]  # noqa: B018
    pipeline.stage("x", concurency=5)  # type: ignore[call-arg]
    pipeline.stage("x")(handler)  # type: ignore[type-var]
    pipeline.start(conn)  # type: ignore[call-arg]


async def unawaited(conn: psycopg.AsyncConnection[Any], message: Attempt) -> None:
    redrive.acomplete(conn, message)  # type: ignore[unused-coroutine]
    redrive.aenqueue(conn, "x", {})  # type: ignore[unused-coroutine]
