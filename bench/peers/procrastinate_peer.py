"""procrastinate: one measurement, as JSON on standard input; prints its rate. Run by `python -m bench.peers`."""

from __future__ import annotations

import asyncio
import time

import procrastinate
import psycopg

from bench.peers.common import PAYLOAD, business_transactions, chunks, measure, require

CONCURRENCY = 100
done: list[int] = []
app = procrastinate.App(connector=procrastinate.SyncPsycopgConnector())


@app.task(name="noop", queue="bench")
async def noop(text: str) -> None:
    done.append(len(text))


def prepare(dsn: str) -> None:
    with procrastinate.App(connector=procrastinate.SyncPsycopgConnector(conninfo=dsn)).open() as opened:
        opened.schema_manager.apply_schema()


def one_by_one(dsn: str, count: int) -> float:
    with (
        psycopg.connect(dsn, autocommit=True) as conn,
        app.replace_connector(procrastinate.SyncPsycopgConnector(conninfo=dsn)) as replaced,
        replaced.open(),
    ):
        defer = replaced.tasks["noop"].configure(connection=conn)
        return business_transactions(conn, count, lambda: defer.defer(text=PAYLOAD))


def in_bulk(dsn: str, count: int) -> float:
    with app.replace_connector(procrastinate.SyncPsycopgConnector(conninfo=dsn)) as replaced, replaced.open():
        task = replaced.tasks["noop"]
        began = time.perf_counter()
        for size in chunks(count):
            task.batch_defer(*[{"text": PAYLOAD}] * size)
        return count / (time.perf_counter() - began)


def drain(dsn: str, count: int) -> float:
    in_bulk(dsn, count)
    return asyncio.run(_drain(dsn, count))


async def _drain(dsn: str, count: int) -> float:
    with app.replace_connector(procrastinate.PsycopgConnector(conninfo=dsn)) as replaced:
        async with replaced.open_async():
            began = time.perf_counter()
            await replaced.run_worker_async(queues=["bench"], wait=False, concurrency=CONCURRENCY)
            took = time.perf_counter() - began
    require(len(done), count)
    return count / took


def run() -> None:
    measure(prepare, {"W1": one_by_one, "W2": in_bulk, "W3": drain})
