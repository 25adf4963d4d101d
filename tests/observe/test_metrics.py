"""Metrics tell the truth: counters are what the database has, labels are words of closed lists."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from redrive import Advance, App, Attempt, Backoff, Delivered, Policy, Retryable, Terminal, Unknown
from redrive.completion import acomplete
from redrive.events import NAMES, Events
from redrive.operate.observe import catalogue
from redrive.operate.observe.catalogue import Kind
from redrive.operate.observe.metrics import Reading, RelayMetrics, exposition, families
from redrive.operate.observe.reader import Reader
from redrive.store.reads.gauges import Gauge, read_gauges
from redrive.store.runtime.postgres import PostgresStore
from tests.observe.scrape import by, scraped
from tests.relay.harness import Seen, enqueue, processing
from tests.support import messages as m
from tests.support.workers import BILLING, INFO

QUICKLY = Policy(attempts=3, backoff=Backoff(initial_seconds=0.01, max_seconds=0.01))
OUTCOME = {"close": "closed", "advance": "advanced", "retry": "retried", "park": "parked"}
UUID_SHAPED = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}")


def shop(app: App, dsn: str) -> None:
    """Destinations that end in every way."""

    @app.destination("fine")
    async def fine(message: Attempt) -> None: ...

    @app.destination("flaky", policy=QUICKLY)
    async def flaky(message: Attempt) -> None:
        if message.number < 3:
            raise Retryable("HTTP_503")

    @app.destination("dead", policy=QUICKLY)
    async def dead(message: Attempt) -> None:
        raise Terminal("HTTP_409") if message.payload else Retryable("HTTP_503")

    @app.destination("doubtful", in_doubt="hold", policy=QUICKLY)
    async def doubtful(message: Attempt) -> None:
        raise Unknown("TIMEOUT")

    async def record(conn: object, attempt: Attempt, settlement: object) -> None:
        raise ValueError("no")

    @app.destination("unrecorded", record=record)
    async def unrecorded(message: Attempt) -> None: ...

    @app.destination("staged")
    async def staged(message: Attempt) -> Advance | Delivered:
        return Advance("second") if message.stage == "first" else Delivered()

    @app.destination("own")
    async def own(message: Attempt) -> None:
        async with await psycopg.AsyncConnection.connect(dsn) as conn:
            await acomplete(conn, message)


SETTLED = """
SELECT destination, settlement, closed, count(*) FROM redrive.attempt
 WHERE verb IN ('settle', 'complete') GROUP BY 1, 2, 3
"""


async def settled_in(store: PostgresStore) -> dict[tuple[str, ...], float]:
    """Settlements of the archive, by destination and by the metric's word for them."""
    found: dict[tuple[str, ...], float] = {}
    for destination, settlement, closed, count in await store.rows(SETTLED, []):
        outcome = "delivered" if closed == "delivered" else OUTCOME[settlement]
        found[destination, outcome] = found.get((destination, outcome), 0) + count
    return found


@pytest.mark.req("G-20")
async def test_at_quiescence_the_counters_are_what_the_database_has(
    database: str, store: PostgresStore, app: App
) -> None:
    shop(app, database)
    metrics, seen = RelayMetrics(), Seen()
    metrics.subscribe(seen.events)
    for destination in app.destinations:
        await enqueue(store, 3, destination=destination)
    await enqueue(store, 3, destination="dead", body=b'{"a": 1}')
    now = datetime.now(UTC) - timedelta(hours=1)
    await m.enqueue(store, now=now, destination="fine", expires_at=now + timedelta(seconds=1))
    async with processing(database, app, seen=seen):
        await seen.that(lambda: _ended(metrics) >= 25, what="all 25 to end")
    shown = scraped(metrics)
    assert by(shown["redrive_delivery_attempts_total"], "destination", "outcome") == await settled_in(store)
    parked = await store.rows("SELECT destination, reason, count(*) FROM redrive.parked GROUP BY 1, 2", [])
    assert by(shown["redrive_parked_total"], "destination", "reason") == {(d, r): n for d, r, n in parked}
    assert {r for _, r, _ in parked} == {"dead", "held", "unrecorded"}
    assert shown["redrive_expired_total"][()] == 1
    (claims,) = await store.rows("SELECT count(*) FROM redrive.attempt WHERE claimed_at IS NOT NULL", [])
    assert shown["redrive_claimed_messages_total"][()] == claims[0]
    assert sum(shown["redrive_delivery_duration_seconds_count"].values()) == claims[0] - 3  # `complete` times nothing
    delivered = sum(n for (_, o), n in (await settled_in(store)).items() if o == "delivered")
    assert sum(shown["redrive_end_to_end_seconds_count"].values()) == delivered


def _ended(metrics: RelayMetrics) -> float:
    shown = scraped(metrics)
    attempts = by(shown.get("redrive_delivery_attempts_total", {}), "destination", "outcome")
    return sum(n for (_, o), n in attempts.items() if o in ("delivered", "parked")) + shown["redrive_expired_total"][()]


@pytest.mark.req("G-20")
async def test_the_values_of_the_database_are_what_the_tables_have(store: PostgresStore) -> None:
    now = datetime.now(UTC)
    await enqueue(store, 2, destination='it\'s, a "name"')
    await m.enqueue(store, now=now, destination=m.DESTINATION)
    taken = await m.claim(store, now=now)
    await m.settle(store, taken, m.park(answer=Terminal("HTTP_409"), error_class="HTTP_409"), now=now)
    await enqueue(store, 4, destination=m.DESTINATION)
    await m.enqueue(store, now=now, destination="erp", due_at=now + timedelta(hours=1))
    await m.enqueue(store, now=now, destination="erp", order_by="a")
    await m.enqueue(store, now=now, destination="erp", order_by="a")
    await store.pause("erp", actor="anna", reason="4711-secret")
    await store.rows("SELECT redrive.begin_duty_1('reap', %s, 10, 10, now() - interval '1 hour')", [m.WORKER])
    await store.heartbeat_worker(INFO, [BILLING])
    values = {(g.name, g.subject, g.reason): g.value for g in await read_gauges(store)}
    assert (values["workers_live", "", ""], values["consumer_handled", "billing", ""]) == (1, 1)
    assert values["messages_pending", m.DESTINATION, ""] == 4
    assert values["messages_due", "erp", ""] == 2
    assert values["messages_pending", "erp", ""] == 3
    assert values["messages_pending", 'it\'s, a "name"', ""] == 2
    assert values["parked", m.DESTINATION, "dead"] == 1
    assert values["parked", m.DESTINATION, "held"] == 0
    assert values["destination_paused", "erp", ""] == 1
    assert values["destination_handled", m.DESTINATION, ""] == 0
    assert values["duty_overdue", "reap", ""] == 1
    assert values["oldest_pending_age_seconds", "erp", ""] > 0
    assert values["parked_oldest_age_seconds", m.DESTINATION, "dead"] > 0
    assert values["capped", "", ""] == 0
    assert {name for name, _, _ in values} == set(catalogue.BY_GAUGE)
    assert {name: len(metric.labels) for name, metric in catalogue.BY_GAUGE.items()} == {
        name: bool(subject) + bool(reason) for name, subject, reason in values
    }


async def test_more_than_are_counted_are_said_to_be_more(store: PostgresStore) -> None:
    await enqueue(store, 5)
    values = {(g.name, g.subject): g.value for g in await read_gauges(store, most=3)}
    assert (values["messages_pending", "shop"], values["capped", ""]) == (3, 1)
    exact = {(g.name, g.subject): g.value for g in await read_gauges(store, most=5)}
    assert (exact["messages_pending", "shop"], exact["capped", ""]) == (5, 0)


@pytest.mark.req("G-17")
async def test_one_relay_reads_and_the_next_one_takes_over_when_it_ends(store: PostgresStore) -> None:
    now = [0.0]
    first = Reader(store, m.WORKER, events=Events(), monotonic=lambda: now[0])
    second = Reader(store, m.OTHER_WORKER, events=Events(), monotonic=lambda: now[0])
    assert await first.read_once()
    assert not await second.read_once()
    assert await first.read_once()  # it keeps it
    assert (first.reading().is_reader, second.reading().is_reader) == (True, False)
    assert not second.reading().gauges
    await store.end_duty("gauges", m.WORKER, result="let go")
    assert await second.read_once()
    assert not await first.read_once()
    assert not first.reading().gauges, "two relays would show the same value"
    now[0] += 31  # nobody heard of the second one for longer than the duty is held
    assert not second.reading().gauges


async def test_a_reader_that_died_is_replaced(store: PostgresStore) -> None:
    assert await Reader(store, m.WORKER, events=Events()).read_once()
    await store.rows(
        "UPDATE redrive.duty SET holder_until = now() - interval '1 s' WHERE name = 'gauges' RETURNING 1", []
    )
    assert await Reader(store, m.OTHER_WORKER, events=Events()).read_once()


@pytest.mark.req("G-15")
async def test_no_label_carries_an_id_a_key_a_tenant_or_a_text(database: str, store: PostgresStore, app: App) -> None:
    shop(app, database)
    seen = Seen()
    reader = Reader(store, m.WORKER, events=seen.events)
    metrics = RelayMetrics(reader.reading)
    metrics.subscribe(seen.events)
    for destination in app.destinations:
        key = f"order:4711-secret:{destination}"
        await m.enqueue(store, now=datetime.now(UTC), destination=destination, key=key, tenant="acme-4711")
    async with processing(database, app, seen=seen):
        await seen.that(lambda: _ended(metrics) >= 7, what="all 7 to end")
        await reader.read_once()
    text = exposition(metrics.registry)[0].decode()
    assert "redrive_messages_pending" in text
    assert not UUID_SHAPED.search(text)
    assert "4711" not in text
    known = {"destination", "outcome", "reason", "during", "duty", "table", "version", "le"}
    used = {label for series in scraped(metrics).values() for labels in series for label, _ in labels}
    assert used <= known
    assert {v for _, v in by(scraped(metrics)["redrive_parked_total"], "destination", "reason")} <= set(
        catalogue.REASONS
    )


def test_the_catalogue_keeps_the_conventions() -> None:
    names = [metric.name for metric in catalogue.METRICS]
    assert len(names) == len(set(names))
    for metric in catalogue.METRICS:
        assert re.fullmatch(r"redrive_[a-z_]+", metric.name)
        assert (metric.kind is Kind.COUNTER) == metric.name.endswith("_total")
        assert set(metric.events) <= NAMES
        assert metric.meaning.endswith((".", "ours."))
        assert bool(metric.buckets) == (metric.kind is Kind.HISTOGRAM)


def test_a_value_that_nobody_declared_is_left_out() -> None:
    assert not list(families([Gauge("card_4711", "x", "", 1.0)]))


def test_series_of_a_consumer_are_there_before_its_first_message() -> None:
    metrics, events = RelayMetrics(moved=catalogue.CONSUMER), Events()
    metrics.subscribe(events)
    events.emit("worker.started", worker=m.WORKER, consumers=["billing"])
    billing = (("consumer", "billing"),)
    shown = scraped(metrics)
    assert {shown[metric.name][billing] for metric in catalogue.CONSUMER} == {0}
    events.emit("consumer.progress", consumer="billing", in_hand=3, oldest_seconds=1.5)
    events.emit("consumer.looked", consumer="billing")
    shown = scraped(metrics)
    assert shown["redrive_consumer_in_hand"][billing] == 3
    assert shown["redrive_consumer_oldest_in_hand_seconds"][billing] == 1.5
    assert shown["redrive_consumer_connected"][billing] == 1
    events.emit("consumer.source_failed", consumer="billing", error="OSError", tries=0)
    assert scraped(metrics)["redrive_consumer_connected"][billing] == 0


def test_counters_are_there_before_anything_has_happened() -> None:
    """An alert on `increase` would else miss the first one."""
    metrics, events = RelayMetrics(lambda: Reading(is_reader=True, at=5.0)), Events()
    metrics.subscribe(events)
    events.emit("relay.started", worker=m.WORKER, destinations=["erp"])
    shown = scraped(metrics)
    assert shown["redrive_parked_total"][("destination", "erp"), ("reason", "held")] == 0
    assert shown["redrive_fenced_writes_total"][(("destination", "erp"),)] == 0
    assert shown["redrive_claims_total"][()] == 0
    assert shown["redrive_gauges_reader"][()] == 1
