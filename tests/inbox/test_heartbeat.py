"""Workers register and report how far they are; one without a sign of life is lost; a consumer without one is said."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from redrive.app import App
from redrive.consume.event import Event
from redrive.consume.process import WorkerProcess, run_worker
from redrive.events import Events
from redrive.operate.findings import findings
from redrive.operate.observe.worker_health import WorkerHealth
from redrive.operate.web.principal import Principal, Role
from redrive.operate.web.tenants import status_for
from redrive.ports.workers import ConsumerReport
from redrive.store.reads.gauges import read_gauges
from redrive.store.reads.status import Status, status
from redrive.store.runtime.postgres import PostgresStore
from redrive.testing import ScriptedSource
from tests.inbox.test_worker import until, working
from tests.support.proxy import Proxy
from tests.support.workers import BILLING, INFO, OTHER

pytestmark = pytest.mark.req("G-29")


@pytest.fixture
async def store(database: str) -> AsyncIterator[PostgresStore]:
    async with PostgresStore(database, connections=2) as opened:
        yield opened


async def nothing(conn: Any, event: Event) -> None:
    """A handler that writes nothing."""


async def codes(store: PostgresStore, now: datetime) -> set[tuple[str, str]]:
    return {(finding.code, finding.subject) for finding in findings(await status(store, now=now))}


async def test_a_heartbeat_registers_and_the_next_one_says_how_far_it_is(store: PostgresStore) -> None:
    now = await store.now()
    await store.heartbeat_worker(INFO, [], now=now)
    await store.heartbeat_worker(INFO, [BILLING], now=now + timedelta(seconds=5))
    found = await status(store, now=now + timedelta(seconds=8))
    (worker,) = found.workers
    assert (worker.name, worker.host, worker.pid, worker.version) == ("worker-1", "app-1", 4711, "0.1.0")
    assert (worker.started_at, worker.seen_seconds_ago, worker.live) == (now, 3.0, True)
    assert worker.consumers == [BILLING]
    assert [(one.name, one.workers, one.away) for one in found.consumers] == [("billing", 1, 0)]
    assert found.relays == []
    assert findings(found) == []


async def test_a_worker_without_a_heartbeat_is_lost_and_forgotten_after_a_day(store: PostgresStore) -> None:
    now = await store.now()
    await store.heartbeat_worker(INFO, [BILLING], now=now)
    later = now + timedelta(seconds=31)
    await store.heartbeat_worker(OTHER, [replace(BILLING, name="mail")], now=later)
    found = await status(store, now=later)
    assert [(worker.name, worker.live) for worker in found.workers] == [("worker-2", True), ("worker-1", False)]
    assert await codes(store, later) == {("consumer_unhandled", "billing")}
    gauges = {(one.name, one.subject): one.value for one in await read_gauges(store)}
    assert (gauges["workers_live", ""], gauges["consumer_handled", "billing"]) == (2, 1)  # by the clock as it is
    day = now + timedelta(days=1, seconds=1)
    assert await store.forget_relays(after_seconds=86_400, now=day) == 0
    assert [worker.name for worker in (await status(store, now=day)).workers] == ["worker-2"]
    assert await codes(store, day) == {("consumer_unhandled", "billing"), ("consumer_unhandled", "mail")}
    week = now + timedelta(days=7, seconds=2)
    await store.forget_relays(after_seconds=86_400, now=week)
    assert [one.name for one in (await status(store, now=week)).consumers] == ["mail"]


async def test_a_consumer_whose_last_worker_stopped_is_said_after_half_a_minute(store: PostgresStore) -> None:
    now = await store.now() - timedelta(seconds=60)
    await store.heartbeat_worker(INFO, [BILLING], now=now)
    await store.deregister_worker(INFO.worker, now=now + timedelta(seconds=20))
    found = await status(store, now=now + timedelta(seconds=25))
    assert ([*found.workers], [(one.workers, one.seen_seconds_ago) for one in found.consumers]) == ([], [(0, 5.0)])
    assert findings(found) == []  # it may be starting again
    assert await codes(store, now + timedelta(seconds=51)) == {("consumer_unhandled", "billing")}
    gauges = {(one.name, one.subject): one.value for one in await read_gauges(store)}
    assert (gauges["workers_live", ""], gauges["consumer_handled", "billing"]) == (0, 0)


async def test_a_source_that_does_not_answer_is_said_and_one_that_was_not_asked_yet_is_not(
    store: PostgresStore,
) -> None:
    now = await store.now()
    await store.heartbeat_worker(INFO, [replace(BILLING, is_connected=None)], now=now)
    assert await codes(store, now) == set()
    await store.heartbeat_worker(INFO, [replace(BILLING, is_connected=False)], now=now)
    assert await codes(store, now) == {("source_away", "billing")}


async def test_a_clock_that_was_set_back_leaves_no_dead_worker_alive(store: PostgresStore) -> None:
    now = await store.now()
    await store.heartbeat_worker(INFO, [BILLING], now=now + timedelta(hours=2))
    await store.rows("SELECT redrive.set_back('-2 hours', %s)", [now])
    found = await status(store, now=now + timedelta(seconds=31))
    assert [worker.live for worker in found.workers] == [False]
    assert await codes(store, now + timedelta(seconds=31)) == {("consumer_unhandled", "billing")}


async def test_a_caller_of_one_tenant_sees_no_worker(store: PostgresStore) -> None:
    await store.heartbeat_worker(INFO, [BILLING])
    reduced = status_for(Principal(name="ada", role=Role.VIEWER, tenant="acme"), await status(store))
    assert (reduced.workers, reduced.consumers) == ([], [])


@pytest.mark.parametrize(("role", "may"), [("redrive_relay", True), ("redrive_producer", False)])
async def test_a_worker_needs_the_role_of_relays(database: str, role: str, may: bool) -> None:
    with psycopg.connect(database) as conn:
        conn.execute(f"SET ROLE {role}".encode())
        beat = "SELECT redrive.heartbeat_worker_1(gen_random_uuid(), 'w', 'h', 1, '0', '[{\"name\": \"x\", \"y\": 1}]')"
        if may:
            conn.execute(beat)
            conn.execute("RESET ROLE")
            row = conn.execute("SELECT consumers->0->>'name', consumers->0->>'y' FROM redrive.worker").fetchone()
            assert row == ("x", None)  # what no reader knows is not kept
        else:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                conn.execute(beat)


async def test_a_real_worker_reports_what_it_has_done_and_its_row_ends_with_it(
    store: PostgresStore, database: str
) -> None:
    app, source, gate = App(), ScriptedSource(), asyncio.Event()

    @app.consumer("billing", source=source)
    async def billing(conn: Any, event: Event) -> None:
        if event.id == "fails":
            raise ZeroDivisionError
        if event.id == "waits":
            await gate.wait()

    for id_ in ("fine", "fails", "fine", "waits"):
        source.put(id_)

    async def one(condition: Callable[[ConsumerReport], bool]) -> Status:
        while True:
            found = await status(store)
            if any(condition(report) for worker in found.workers for report in worker.consumers):
                return found
            await asyncio.sleep(0.01)

    async with working(app, database, heartbeat_seconds=0.05, name="worker-1"), asyncio.timeout(60):
        found = await one(lambda report: report.received == 4 and report.in_hand == 1 and report.oldest_seconds > 0)
        (worker,) = found.workers
        (report,) = worker.consumers
        assert (worker.name, worker.live, report.name, report.is_connected) == ("worker-1", True, "billing", True)
        assert (report.processed, report.deferred, report.seen, report.given_back) == (1, 1, 1, 0)
        assert report.ended_seconds is not None
        gate.set()
        await one(lambda report: report.in_hand == 0 and report.processed == 2)
    assert (await status(store)).workers == []


async def test_an_idle_worker_notices_that_postgresql_is_away_and_back(database: str, tmp_path: Path) -> None:
    app = App()
    app.consumer("billing", source=ScriptedSource())(nothing)
    events, health = Events(), WorkerHealth({"billing": 30})
    health.subscribe(events)
    async with Proxy(tmp_path, database) as proxy:
        process = WorkerProcess(app=app, dsn=proxy.dsn, heartbeat_seconds=0.05)
        worker = asyncio.create_task(run_worker(process, events=events, signals=False))
        await until(health.is_ready)
    try:
        await until(lambda: not health.is_ready())
        assert [check.reason for check in health.checks() if check.reason] == ["the database does not answer"]
        assert health.is_live()
        async with Proxy(tmp_path, database):
            await until(health.is_ready)
            worker.cancel()
            await worker
    finally:
        worker.cancel()


async def test_a_worker_whose_report_is_refused_still_consumes(database: str) -> None:
    app, source = App(), ScriptedSource()
    app.consumer("billing", source=source)(nothing)
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("ALTER FUNCTION redrive.heartbeat_worker_1 RENAME TO heartbeat_worker_0")
    source.put("e-1")
    async with working(app, database) as seen:
        await until(lambda: source.acknowledged == ["e-1"])
        await until(lambda: any(name == "worker.unreachable" for name, _ in seen))
    assert {values["error"] for name, values in seen if name == "worker.unreachable"} == {
        "psycopg.errors.UndefinedFunction"
    }
