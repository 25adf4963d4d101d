"""What the peers' measurements share: payload, business INSERT and chunks, as `redrive bench` has them."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping

import psycopg

PAYLOAD = "x" * 289
CHUNK = 1000
Measure = Callable[[str, int], float]


def measure(prepare: Callable[[str], None], works: Mapping[str, Measure]) -> None:
    asked = json.load(sys.stdin)
    prepare(asked["dsn"])
    print(json.dumps(works[asked["work"]](asked["dsn"], asked["count"])))


def business_transactions(conn: psycopg.Connection, count: int, enqueue: Callable[[], object]) -> float:
    """A business INSERT and an enqueue in one transaction of the caller. PgQueuer demands autocommit mode."""
    conn.execute("CREATE TABLE business (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, text text)")
    began = time.perf_counter()
    for _ in range(count):
        with conn.transaction():
            conn.execute("INSERT INTO business (text) VALUES (%s)", ["x" * 50])
            enqueue()
    return count / (time.perf_counter() - began)


def chunks(count: int) -> Iterator[int]:
    for start in range(0, count, CHUNK):
        yield min(CHUNK, count - start)


def require(done: int, count: int) -> None:
    if done != count:
        raise SystemExit(f"{done} of {count} jobs ran: this run does not count")
