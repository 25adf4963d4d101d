"""`drain` with consumers: events of a ScriptedSource have their effect inside the test's own transaction (G-23)."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

import redrive
from redrive.consume.event import Event
from redrive.errors import UnsupportedConnection
from redrive.testing import ManualClock, ScriptedSource, adrain, assert_enqueued, drain, enqueued, rewired

pytestmark = pytest.mark.req("G-23")

Connection = psycopg.Connection[Any]
INVOICES = "SELECT id FROM invoice ORDER BY number"


def no_broker() -> ScriptedSource:
    raise AssertionError("a drain connects to no broker")


@pytest.fixture
def failing() -> set[str]:
    return set()


@pytest.fixture(params=["async", "def"])
def shop(request: pytest.FixtureRequest, failing: set[str]) -> redrive.App:
    app = redrive.App()

    async def abilling(conn: Any, event: Event) -> None:
        await conn.execute("INSERT INTO invoice (id) VALUES (%s)", [event.data["invoice"]])
        await redrive.aenqueue(conn, "mail", {"invoice": event.data["invoice"]})
        if event.id in failing:
            raise ZeroDivisionError

    def billing(conn: Any, event: Event) -> None:
        conn.execute("INSERT INTO invoice (id) VALUES (%s)", [event.data["invoice"]])
        redrive.enqueue(conn, "mail", {"invoice": event.data["invoice"]})
        if event.id in failing:
            raise ZeroDivisionError

    declare: Any = app.consumer("billing", source=no_broker, order="subject", types={"placed"})
    declare(abilling if request.param == "async" else billing)

    @app.destination("mail")
    def mail(message: redrive.Attempt) -> None: ...

    return app


@pytest.fixture
def source() -> ScriptedSource:
    return ScriptedSource()


def invoices(conn: Connection) -> list[str]:
    return [id for (id,) in conn.execute(INVOICES).fetchall()]


def put(source: ScriptedSource, *ids: str, kind: str = "placed") -> None:
    for id in ids:
        source.put(id, {"invoice": f"i-{id}"}, kind=kind, subject="a")


def test_events_have_their_effect_once_and_are_gone_with_the_rollback(
    conn: Connection, shop: redrive.App, source: ScriptedSource
) -> None:
    conn.execute("CREATE TABLE invoice (number serial, id text NOT NULL)")
    put(source, "1", "2", "1")
    done = drain(conn, rewired(shop, sources={"billing": source}))
    assert (done.processed, done.seen, done.deferred) == (["1", "2"], ["1"], [])
    assert len(done.delivered) == 2  # what the handler enqueued
    assert invoices(conn) == ["i-1", "i-2"]
    assert source.acknowledged == ["1", "2", "1"]
    conn.rollback()
    assert conn.execute("SELECT count(*) FROM redrive.inbox").fetchone() == (0,)


def test_what_fails_is_deferred_and_the_same_drain_delivers_it_in_order(
    conn: Connection, shop: redrive.App, source: ScriptedSource, failing: set[str]
) -> None:
    conn.execute("CREATE TABLE invoice (number serial, id text NOT NULL)")
    failing.add("1")
    put(source, "1", "2")
    app, clock = rewired(shop, sources={"billing": source}), ManualClock()
    done = drain(conn, app, clock=clock)
    assert (done.processed, done.deferred, len(done.retried)) == ([], ["1", "2"], 1)
    assert invoices(conn) == []
    assert len(enqueued(conn, "billing")) == 2
    failing.clear()
    done = drain(conn, app, clock=clock, to_the_end=True)
    assert invoices(conn) == ["i-1", "i-2"]
    assert len(done.delivered) == 4
    assert drain(conn, app, clock=clock, to_the_end=True).delivered == [], "once"


def test_what_is_deferred_for_another_reason_is_parked_and_neighbours_go_on(
    conn: Connection, shop: redrive.App, source: ScriptedSource
) -> None:
    conn.execute("CREATE TABLE invoice (number serial, id text NOT NULL)")
    source.put_raw("raw", b"{", content_type="application/cloudevents+json")
    put(source, "1")
    done = drain(conn, rewired(shop, sources={"billing": source}))
    assert (done.processed, done.deferred, len(done.parked)) == (["1"], ["raw"], 1)


def test_a_constraint_of_the_test_is_an_ordinary_failure_and_the_transaction_goes_on(
    conn: Connection, shop: redrive.App, source: ScriptedSource
) -> None:
    conn.execute("CREATE TABLE invoice (number serial, id text NOT NULL UNIQUE)")
    conn.execute("INSERT INTO invoice (id) VALUES ('i-1')")
    put(source, "1")
    assert drain(conn, rewired(shop, sources={"billing": source})).deferred == ["1"]
    assert invoices(conn) == ["i-1"]
    assert_enqueued(conn, "mail", count=0)


def test_an_event_too_large_to_defer_waits_in_its_source(
    conn: Connection, shop: redrive.App, source: ScriptedSource, failing: set[str]
) -> None:
    conn.execute("CREATE TABLE invoice (number serial, id text NOT NULL)")
    failing.add("big")
    source.put("big", {"invoice": "i-big", "text": "x" * 300_000}, kind="placed", subject="a")
    put(source, "1")
    app = rewired(shop, sources={"billing": source})
    done = drain(conn, app)
    assert (done.reserved, done.deferred, len(done.parked), source.waiting) == (["big"], ["1"], 1, 1)
    failing.clear()
    assert drain(conn, app).processed == ["big"]
    assert invoices(conn) == ["i-big", "i-1"]


def test_a_consumer_of_a_real_broker_is_left_alone(conn: Connection, shop: redrive.App) -> None:
    assert drain(conn, shop).processed == []
    with pytest.raises(KeyError, match="no consumer 'search'"):
        rewired(shop, sources={"search": ScriptedSource()})


@pytest.mark.parametrize("shop", ["async"], indirect=True)
async def test_an_asynchronous_connection_consumes_too(
    database: str, shop: redrive.App, source: ScriptedSource
) -> None:
    async with await psycopg.AsyncConnection.connect(database) as conn:
        await conn.execute("CREATE TABLE invoice (number serial, id text NOT NULL)")
        put(source, "1")
        assert (await adrain(conn, rewired(shop, sources={"billing": source}))).processed == ["1"]
        await conn.rollback()


@pytest.mark.parametrize("shop", ["def"], indirect=True)
async def test_a_def_consumer_on_an_asynchronous_connection_is_refused(
    database: str, shop: redrive.App, source: ScriptedSource
) -> None:
    put(source, "1")
    async with await psycopg.AsyncConnection.connect(database) as conn:
        with pytest.raises(UnsupportedConnection, match="is a def"):
            await adrain(conn, rewired(shop, sources={"billing": source}))
