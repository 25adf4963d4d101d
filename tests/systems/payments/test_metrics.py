"""The metrics of payments have the names that their document gives them, and count payments only (P-06)."""

from __future__ import annotations

import re
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from redrive.app import App
from redrive.events import Events
from redrive.message import ParkReason, WorkerId
from redrive.operate.observe.metrics import RelayMetrics, exposition
from redrive.operate.observe.reader import Reader
from redrive.ports import ClaimRequest
from redrive.store.runtime.postgres import PostgresStore
from redrive.systems import payments
from redrive.systems.payments.metrics import METRICS, STATES
from redrive.systems.payments.reconcile import reconcile
from tests.support import messages as m
from tests.systems.payments.conftest import instruction
from tests.systems.payments.rails import order, post, running

pytestmark = pytest.mark.req("P-06")

# As the document lists them.
SEED = {
    "outbox_pending_depth",
    "oldest_pending_age_seconds",
    "notify_wakeups_total",
    "claim_batches_total",
    "dispatch_latency_ms",
    "attempts_total",
    "dlq_depth",
    "reaper_requeues_total",
    "stuck_dispatching_count",
}
ALL = list(METRICS.values())


def value(metrics: RelayMetrics, series: str) -> float | None:
    text = exposition(metrics.registry)[0].decode()
    found = re.search(rf"^{re.escape(series)} (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else None


def test_every_name_of_the_document_is_there() -> None:
    assert set(METRICS) >= SEED


def test_an_app_that_includes_payments_has_them_and_every_state_begins_at_0() -> None:
    app = App()
    app.include(payments.with_rails([payments.Rail(rail_type="sepa", url="https://rail.example")]))
    assert set(app.systems["payments"].metrics) == set(METRICS)
    metrics, events = RelayMetrics(more=ALL), Events()
    metrics.subscribe(events)
    events.emit("relay.started", worker="w", name="n", destinations=["payments.sepa", "mail"])
    assert {value(metrics, f'attempts_total{{state="{state}"}}') for state in STATES} == {0.0}
    assert value(metrics, 'dispatch_latency_ms_count{destination="payments.sepa"}') == 0
    assert value(metrics, 'dispatch_latency_ms_count{destination="mail"}') is None


def test_what_a_relay_does_with_payments_counts_and_nothing_else() -> None:
    metrics, events = RelayMetrics(more=ALL), Events()
    metrics.subscribe(events)
    for destination in ("payments.sepa", "mail"):
        events.emit("message.delivered", destination=destination, latency_ms=20, age_seconds=1.0)
        events.emit("message.retried", destination=destination, latency_ms=20)
        for reason in ("dead", "held"):
            events.emit("message.parked", destination=destination, reason=reason, latency_ms=300)
    events.emit("claim.stop", count=3, expired=0)
    events.emit("reap.stop", requeued=2)
    events.emit("relay.rung")
    counted = {state: value(metrics, f'attempts_total{{state="{state}"}}') for state in STATES}
    assert counted == {
        "DISPATCHING": 3,
        "DISPATCHED": 1,
        "RETRYABLE": 1,
        "FAILED": 1,
        "HELD": 1,
        "UNRECORDED": None,
        "ZOMBIE_REQUEUE": 2,
    }
    assert value(metrics, "reaper_requeues_total") == 2
    assert value(metrics, "claim_batches_total") == value(metrics, "notify_wakeups_total") == 1
    assert value(metrics, 'dispatch_latency_ms_sum{destination="payments.sepa"}') == 20 + 20 + 300 + 300
    assert value(metrics, 'dispatch_latency_ms_bucket{destination="payments.sepa",le="25.0"}') == 2
    assert value(metrics, 'dispatch_latency_ms_count{destination="mail"}') is None


async def test_what_the_database_says_of_payments_is_shown_by_the_relay_that_reads_it(
    database: str, tmp_path: Path
) -> None:
    with psycopg.connect(database) as conn:
        payments.add_participant(conn, "acme")
        for number in range(3):
            payments.submit(conn, instruction("acme", number))
    async with PostgresStore(database, connections=2) as store, running(tmp_path / "rail.log") as rail:
        await m.enqueue(store, destination="mail")
        (attempt,) = (await store.claim(m.WORKER, [ClaimRequest("payments.sepa", 1, 1)], lease_seconds=60)).attempts
        await store.settle(m.WORKER, [m.outcome(attempt, m.park(ParkReason.DEAD))])
        await post(rail.url, order("stranger"))
        await reconcile(store, rail.rail(), lag_seconds=0)
        reader = Reader(store, WorkerId(uuid4()), events=Events(), more=ALL)
        metrics = RelayMetrics(reader.reading, more=ALL)
        assert value(metrics, 'dlq_depth{destination="payments.sepa"}') is None, "it reads nothing yet"
        assert await reader.read_once()
        shown = {name: value(metrics, f'{name}{{destination="payments.sepa"}}') for name in SEED}
        assert (shown["dlq_depth"], shown["outbox_pending_depth"], shown["stuck_dispatching_count"]) == (1, 2, 0)
        assert shown["oldest_pending_age_seconds"] is not None
        assert value(metrics, 'outbox_pending_depth{destination="mail"}') is None
        assert value(metrics, 'payments_findings{kind="unexplained",rail="sepa"}') == 1
        assert value(metrics, 'payments_findings{kind="twice",rail="sepa"}') == 0
