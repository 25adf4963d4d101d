"""The numbers of the outbox: equal to what the tables hold, over a window, as snapshot, Prometheus text and health."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from prometheus_client.parser import text_string_to_metric_families

import redrive
from redrive.events import Events
from redrive.kit.database import Row
from redrive.message import WorkerId
from redrive.operate.observe.metrics import RelayMetrics, exposition
from redrive.operate.observe.reader import Reader
from redrive.store.runtime.postgres import PostgresStore
from redrive.systems.tenant import reads
from redrive.systems.tenant.health import Verdict, judge
from redrive.systems.tenant.metrics import METRICS
from redrive.systems.tenant.options import OutboxOptions
from redrive.systems.tenant.prometheus import exposition as text_of
from redrive.systems.tenant.reads import Numbers, summed
from tests.support.databases import fresh_database
from tests.systems.tenant.conftest import Conn, delivered_by, outbox, published

pytestmark = [pytest.mark.req("T-05"), pytest.mark.req("T-12")]
BUSY = redrive.Retryable("BUSY")
GONE = redrive.Terminal("GONE")
NONE = Numbers(300.0, 0, 0, 0, 0, 0.0, 0.0, 0, 0)


def snapshot(conn: Conn, acme: str | None, window: float = 300.0, old: int = 3) -> dict[str, Any]:
    cursor = conn.execute("SELECT * FROM redrive_tenant.snapshot(%s, %s, %s)", [acme, window, old])
    names = [one.name for one in cursor.description or ()]
    return dict(zip(names, next(iter(cursor.fetchall()), (None,) * len(names)), strict=True))


@pytest.mark.seed("003", "Metrics_Computation_Accurate")
def test_the_numbers_are_those_of_a_known_set_of_events(conn: Conn, acme: str) -> None:
    """Of seven: two delivered (one after a failure), one dead at once, one dead after three, one waits for its third
    attempt, two are untouched."""
    box, _ = outbox(None, BUSY, None, GONE, BUSY, BUSY, BUSY, BUSY, BUSY, max_retries=3)
    for entity, attempts in (("good", 1), ("retried", 2), ("bad", 1), ("exhausted", 3), ("waiting", 2)):
        box.writer.add(conn, acme, published(entity))
        for _ in range(attempts):
            conn.execute("UPDATE redrive.pending SET due_at = clock_timestamp() WHERE tenant = %s", [acme])
            delivered_by(conn, box)
    for number in range(2):
        box.writer.add(conn, acme, published(entity="new", version=number))
    conn.execute("UPDATE redrive.pending SET due_at = now() + interval '1 hour' WHERE tenant = %s", [acme])
    found = snapshot(conn, acme)
    assert 0 <= found.pop("latency_mean_seconds") <= found.pop("oldest_age_seconds") < 600
    assert found == {
        "outbox": "tenant.events",
        "backlog_size": 3,
        "failed_pending": 3,
        "old_failures": 1,
        "dead_letters": 2,
        "processed": 2,
        "failures": 7,
    }
    assert snapshot(conn, acme, old=2)["old_failures"] == 2


def test_the_numbers_are_of_one_tenant_or_of_all(conn: Conn, acme: str) -> None:
    box, _ = outbox()
    before = snapshot(conn, None)["backlog_size"] or 0
    box.writer.add(conn, acme, published())
    box.writer.add(conn, f"{acme}-2", published())
    redrive.enqueue(conn, "mail", {})
    assert snapshot(conn, acme)["backlog_size"] == 1
    assert snapshot(conn, None)["backlog_size"] == before + 2


@pytest.mark.seed("003", "Metrics_Snapshot_Computation")
def test_ratios_and_means_are_computed_from_the_counts() -> None:
    row: Row = {
        "backlog_size": 3, "failed_pending": 1, "old_failures": 1, "dead_letters": 2, "oldest_age_seconds": 9.0,
        "latency_mean_seconds": 4.0, "processed": 6, "failures": 2,
    }  # fmt: skip
    other = {**row, "backlog_size": 1, "latency_mean_seconds": 8.0, "oldest_age_seconds": 20.0, "processed": 0}
    both = summed([row, other], 60.0)
    assert (both.backlog_size, both.oldest_age_seconds, both.processing_latency_seconds) == (4, 20.0, 5.0)
    assert (both.throughput, both.failure_ratio) == (0.1, 0.4)
    none = summed([], 60.0)
    assert (none.throughput, none.failure_ratio, none.processing_latency_seconds) == (0.0, 0.0, 0.0)


def test_throughput_rolls_with_the_window(conn: Conn, acme: str) -> None:
    box, _ = outbox(None, None)
    for number in range(2):
        box.writer.add(conn, acme, published(version=number))
    delivered_by(conn, box)
    (end,) = conn.execute("SELECT max(completed_at) FROM redrive.attempt WHERE tenant = %s", [acme]).fetchall()[0]

    def processed(later: float) -> int:
        query = "SELECT processed FROM redrive_tenant.snapshot(%s, 60, 3, %s)"
        return next((count for (count,) in conn.execute(query, [acme, end + timedelta(seconds=later)])), 0)

    assert [processed(later) for later in (-1, 0, 30, 59.9, 60, 3600)] == [0, 2, 2, 2, 0, 0]


def test_what_ended_lately_is_found_by_the_time_of_its_end(conn: Conn) -> None:
    conn.execute("SET LOCAL enable_seqscan = off")
    plan = conn.execute(
        "EXPLAIN (COSTS OFF) SELECT count(*) FROM redrive.attempt a WHERE a.completed_at > now() - interval '1 minute'"
    ).fetchall()
    assert "completed_at_idx" in "\n".join(line for (line,) in plan)


class TestRelay:
    """A relay publishes its options and serves the numbers."""

    @pytest.fixture
    def database(self, server_dsn: str, template: str) -> Iterator[str]:
        with fresh_database(server_dsn, template=template) as dsn:
            yield dsn

    async def test_its_metrics_are_those_of_the_tables_and_of_its_own_options(self, database: str) -> None:
        box, _ = outbox(None, GONE, window_seconds=100.0, old_failure_retries=1, max_retries=1)
        app, events, done = redrive.App(), Events(), asyncio.Event()
        app.include(box.system())
        ended: list[str] = []
        events.subscribe(lambda name, _: (ended.append(name), len(ended) > 1 and done.set()), *_ENDS)
        with psycopg.connect(database) as conn:
            for number in range(2):
                box.writer.add(conn, "acme", published(version=number))
        metrics = RelayMetrics(more=[*METRICS.values()])
        metrics.subscribe(events)
        published_options = asyncio.Event()
        events.subscribe(
            lambda _, values: "options" in str(values.get("result")) and published_options.set(), "duty.stop"
        )
        async with app.running(database, events=events), asyncio.timeout(60):
            await done.wait()
            await published_options.wait()
        with psycopg.connect(database) as conn:
            box.writer.add(conn, "acme", published(version=3))
        async with PostgresStore(database, connections=1) as store:
            reader = Reader(store, WorkerId(uuid4()), events=Events(), more=[*METRICS.values()])
            assert await reader.read_once()
            assert (await reads.published_options(store)) == box.options
            shown = RelayMetrics(reader.reading, more=[*METRICS.values()])
            numbers = await reads.numbers(store, tenant=None)
        found = _samples(exposition(shown.registry)[0].decode())
        expected = {
            "outbox_backlog_size": 1.0,
            "outbox_failed_pending": 1.0,
            "outbox_old_failures": 1.0,
            "outbox_dead_letters": 1.0,
            "outbox_throughput_per_second": 0.01,
            "outbox_failure_ratio": 0.5,
        }
        assert {name: found[name, "tenant.events"] for name in expected} == expected
        assert (numbers.window_seconds, numbers.processed, numbers.failures) == (100.0, 1, 1)
        moved = _samples(exposition(metrics.registry)[0].decode())
        assert (moved["outbox_processed_total", ""], moved["outbox_failures_total", ""]) == (1.0, 1.0)
        assert moved["outbox_delivery_seconds_count", "tenant.events"] == 1.0

    def test_a_switch_leaves_the_metrics_out(self) -> None:
        assert outbox(prometheus_enabled=False)[0].system().metrics == {}
        assert set(outbox()[0].system().metrics) == set(METRICS)

    def test_only_a_relay_may_publish_options_and_only_of_an_outbox(self, conn: Conn) -> None:
        values = json.dumps(OutboxOptions().documented())
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="is no outbox"), conn.transaction():
            conn.execute("SELECT redrive_tenant.publish_options_1('mail', %s)", [values])
        conn.execute("SET LOCAL ROLE redrive_viewer")
        with pytest.raises(psycopg.errors.InsufficientPrivilege), conn.transaction():
            conn.execute("SELECT redrive_tenant.publish_options_1('tenant.events', %s)", [values])
        conn.execute("RESET ROLE; SET LOCAL ROLE redrive_relay")
        query = "SELECT redrive_tenant.publish_options_1('tenant.events', %s)"
        assert [conn.execute(query, [values]).fetchone() for _ in range(2)] == [(True,), (False,)]


_ENDS = ("message.delivered", "message.parked")


def _samples(text: str) -> dict[tuple[str, str], float]:
    """By name and the outbox or destination."""
    return {
        (sample.name, sample.labels.get("outbox", sample.labels.get("destination", ""))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("outbox_")
    }


def test_the_snapshot_as_prometheus_text_can_be_parsed_and_names_every_gauge() -> None:
    numbers = Numbers(10.0, 7, 3, 2, 1, 60.5, 30.25, 20, 5)
    found = {name: value for (name, _), value in _samples(text_of(numbers)).items()}
    assert found == {
        "outbox_backlog_size": 7,
        "outbox_failed_pending": 3,
        "outbox_old_failures": 2,
        "outbox_dead_letters": 1,
        "outbox_oldest_age_seconds": 60.5,
        "outbox_processing_latency_seconds": 30.25,
        "outbox_throughput_per_second": 2.0,
        "outbox_failure_ratio": 0.2,
    }
    assert set(found) == {name for name, metric in METRICS.items() if metric.gauge}


@pytest.mark.parametrize(
    ("numbers", "verdict", "reasons"),
    [
        (NONE, Verdict.HEALTHY, []),
        (Numbers(300.0, 999, 0, 0, 0, 299.9, 0.0, 81, 20), Verdict.HEALTHY, []),
        (Numbers(300.0, 1000, 0, 0, 0, 0.0, 0.0, 0, 0), Verdict.DEGRADED, ["backlogSize is 1000, at or above 1000"]),
        (
            Numbers(300.0, 10_000, 0, 0, 0, 0.0, 0.0, 0, 0),
            Verdict.UNHEALTHY,
            ["backlogSize is 10000, at or above 10000"],
        ),
        (Numbers(300.0, 1, 0, 0, 0, 300.0, 0.0, 0, 0), Verdict.DEGRADED, ["oldestAgeSeconds is 300, at or above 300"]),
        (
            Numbers(300.0, 1, 0, 0, 0, 3600.0, 0.0, 0, 0),
            Verdict.UNHEALTHY,
            ["oldestAgeSeconds is 3600, at or above 3600"],
        ),
        (Numbers(300.0, 0, 0, 0, 0, 0.0, 0.0, 8, 2), Verdict.DEGRADED, ["failureRatio is 0.2, at or above 0.2"]),
        (Numbers(300.0, 0, 0, 0, 0, 0.0, 0.0, 5, 5), Verdict.UNHEALTHY, ["failureRatio is 0.5, at or above 0.5"]),
        (Numbers(300.0, 0, 1, 1, 1, 0.0, 0.0, 1, 0), Verdict.DEGRADED, ["deadLetters is 1, at or above 1"]),
        (
            Numbers(300.0, 10_000, 1, 1, 1, 0.0, 0.0, 1, 0),
            Verdict.UNHEALTHY,
            ["backlogSize is 10000, at or above 10000", "deadLetters is 1, at or above 1"],
        ),
    ],
)  # fmt: skip
def test_health_is_the_worst_of_its_checks_and_says_which(
    numbers: Numbers, verdict: Verdict, reasons: list[str]
) -> None:
    health = judge(numbers, OutboxOptions())
    assert (health.verdict, health.reasons) == (verdict, reasons)


def test_thresholds_are_options() -> None:
    options = OutboxOptions(backlog_degraded=2, backlog_unhealthy=3)
    verdicts = [judge(Numbers(300.0, size, 0, 0, 0, 0.0, 0.0, 0, 0), options).verdict for size in (1, 2, 3)]
    assert verdicts == [Verdict.HEALTHY, Verdict.DEGRADED, Verdict.UNHEALTHY]
