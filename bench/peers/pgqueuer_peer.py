"""PgQueuer: one measurement, as JSON on standard input; prints its rate. Run by `python -m bench.peers`."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

import asyncpg
import psycopg
from pgqueuer import PgQueuer, Queries
from pgqueuer.db import AsyncpgDriver, SyncPsycopgDriver
from pgqueuer.queries import SyncQueries
from pgqueuer.types import QueueExecutionMode
from psycopg.conninfo import conninfo_to_dict

from bench.peers.common import PAYLOAD, business_transactions, chunks, measure, require

BATCH = 500


def prepare(dsn: str) -> None:
    asyncio.run(_prepare(dsn))


async def _connect(dsn: str) -> asyncpg.Connection:
    """asyncpg reads addresses only; ours may be a list of keywords."""
    given = conninfo_to_dict(dsn)
    given["database"] = given.pop("dbname")
    return await asyncpg.connect(**given)


async def _prepare(dsn: str) -> None:
    conn = await _connect(dsn)
    await Queries(AsyncpgDriver(conn)).install()
    await conn.close()


def one_by_one(dsn: str, count: int) -> float:
    with psycopg.connect(dsn, autocommit=True) as conn:
        queries = SyncQueries(SyncPsycopgDriver(conn))
        return business_transactions(conn, count, lambda: queries.enqueue("noop", PAYLOAD.encode()))


def in_bulk(dsn: str, count: int) -> float:
    return asyncio.run(_in_bulk(dsn, count))


async def _in_bulk(dsn: str, count: int) -> float:
    conn = await _connect(dsn)
    queries = Queries(AsyncpgDriver(conn))
    began = time.perf_counter()
    for size in chunks(count):
        await queries.enqueue(["noop"] * size, [PAYLOAD.encode()] * size, [0] * size)
    took = time.perf_counter() - began
    await conn.close()
    return count / took


def drain(dsn: str, count: int) -> float:
    in_bulk(dsn, count)
    return asyncio.run(_drain(dsn, count))


async def _drain(dsn: str, count: int) -> float:
    conn = await _connect(dsn)
    pgq = PgQueuer(AsyncpgDriver(conn))
    done = 0

    @pgq.entrypoint("noop")
    async def noop(_: object) -> None:
        nonlocal done
        done += 1

    began = time.perf_counter()
    await pgq.run(dequeue_timeout=timedelta(seconds=0), batch_size=BATCH, mode=QueueExecutionMode.drain)
    took = time.perf_counter() - began
    await conn.close()
    require(done, count)
    return count / took


def run() -> None:
    measure(prepare, {"W1": one_by_one, "W2": in_bulk, "W3": drain})
