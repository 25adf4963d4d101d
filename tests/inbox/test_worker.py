"""A worker and its consumers: acknowledged after the commit, deferred when it fails, neighbours undisturbed (G-23)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import psycopg
import pytest

import redrive
from redrive.app import App
from redrive.consume.consumer import Consumer
from redrive.consume.event import Event
from redrive.consume.process import WorkerProcess, run_worker
from redrive.consume.receiving import DatabaseAway, Kind, Result
from redrive.consume.worker import ConsumerWorker
from redrive.errors import InvalidValue, NotFound, SettingsError
from redrive.events import Events
from redrive.relay.build import SystemClock
from redrive.testing import ScriptedSource

pytestmark = pytest.mark.req("G-23")

Connection = psycopg.Connection[Any]
AsyncConnection = psycopg.AsyncConnection[Any]


@pytest.fixture
def conn(database: str) -> Iterator[Connection]:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE effect (number serial, event text)")
        yield connection


@asynccontextmanager
async def working(app: App, dsn: str, **options: Any) -> AsyncIterator[list[tuple[str, Any]]]:
    """A worker of the app, while the block runs; gives its events."""
    events, seen = Events(), list[tuple[str, Any]]()
    events.subscribe(lambda name, values: seen.append((name, dict(values))))
    task = asyncio.create_task(run_worker(WorkerProcess(app=app, dsn=dsn, **options), events=events, signals=False))
    try:
        yield seen
    finally:
        task.cancel()
        await task


async def until(condition: Callable[[], bool], *, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        await asyncio.sleep(0.01)


def effects(conn: Connection) -> list[str]:
    return [event for (event,) in conn.execute("SELECT event FROM effect ORDER BY number").fetchall()]


def outcomes(conn: Connection) -> dict[str, str]:
    return dict(conn.execute("SELECT message_id, outcome FROM redrive.inbox").fetchall())


async def write(conn: AsyncConnection, event: Event) -> None:
    await conn.execute("INSERT INTO effect (event) VALUES (%s)", [event.id])


class LookingSource(ScriptedSource):
    """Looks, at each acknowledgement, whether the effect is committed."""

    def __init__(self, conn: Connection) -> None:
        super().__init__()
        self._conn = conn
        self.committed: list[bool] = []

    async def ack(self, delivery: Any, /) -> None:
        self.committed.append(delivery.id in effects(self._conn))
        await super().ack(delivery)


async def test_an_event_is_acknowledged_after_the_commit_of_its_effect(conn: Connection, database: str) -> None:
    app, source = App(), LookingSource(conn)

    @app.consumer("billing", source=source, concurrency=4)
    async def billing(conn: AsyncConnection, event: Event) -> None:
        await write(conn, event)
        await asyncio.sleep(0.01)

    for n in range(20):
        source.put(f"e-{n}", {"n": n})
    async with working(app, database):
        await until(lambda: len(source.acknowledged) == 20)
    assert source.committed == [True] * 20
    assert len(effects(conn)) == 20
    assert source.is_closed


async def test_a_redelivery_has_no_second_effect(conn: Connection, database: str) -> None:
    app, source = App(), ScriptedSource()
    app.consumer("billing", source=source)(write)
    async with working(app, database) as seen:
        for _ in range(3):
            source.put("e-1")
        await until(lambda: len(source.acknowledged) == 3)
    assert effects(conn) == ["e-1"]
    assert [name for name, _ in seen].count("consumer.seen") == 2


async def test_a_def_handler_writes_and_enqueues_in_one_transaction(conn: Connection, database: str) -> None:
    app, source = App(), ScriptedSource()

    @app.consumer("billing", source=source, types={"placed": dict})
    def billing(conn: Connection, event: Event) -> None:
        conn.execute("INSERT INTO effect (event) VALUES (%s)", [event.id])
        redrive.enqueue(conn, "mail", {"of": event.data["n"]})

    source.put("e-1", {"n": 1}, kind="placed")
    async with working(app, database):
        await until(lambda: source.acknowledged == ["e-1"])
    assert effects(conn) == ["e-1"]
    assert conn.execute("SELECT destination FROM redrive.pending").fetchall() == [("mail",)]


async def test_what_fails_is_deferred_and_the_relay_has_its_effect_once(conn: Connection, database: str) -> None:
    app, source, failing = App(), ScriptedSource(), {"e-2"}

    @app.consumer("billing", source=source, order="subject")
    async def billing(conn: AsyncConnection, event: Event) -> None:
        await write(conn, event)
        if event.id in failing:
            raise ZeroDivisionError

    for n in range(1, 5):
        source.put(f"e-{n}", subject="a" if n > 1 else "b")
    async with working(app, database) as seen:
        await until(lambda: len(source.acknowledged) == 4)
    assert effects(conn) == ["e-1"]  # what failed was rolled back; e-3 and e-4 wait behind it
    assert [v["code"] for n, v in seen if n == "consumer.deferred"] == ["CONSUMER_FAILED", "BEHIND", "BEHIND"]
    assert set(outcomes(conn).values()) == {"processed", "deferred"}
    failing.clear()
    async with app.running(database):
        await until(lambda: len(effects(conn)) == 4)
    assert effects(conn) == ["e-1", "e-2", "e-3", "e-4"]
    closed = conn.execute("SELECT count(*) FROM redrive.attempt WHERE closed = 'delivered'").fetchone()
    assert closed == (3,)


async def test_unknown_and_malformed_events_are_parked_and_neighbours_go_on(conn: Connection, database: str) -> None:
    app, source = App(), ScriptedSource()
    app.consumer("billing", source=source, types={"placed"})(write)
    source.put("e-1", kind="placed")
    source.put("e-2", kind="never heard of")
    source.put_raw("raw-3", b"\xff\x00", headers={"x": "y\n" * 5000})
    source.put_raw("raw-4", b"{", content_type="application/cloudevents+json")
    source.put("e-5", kind="placed")
    async with working(app, database):
        await until(lambda: len(source.acknowledged) == 5)
    assert sorted(effects(conn)) == ["e-1", "e-5"]
    parked = "SELECT error_class FROM redrive.parked ORDER BY 1"
    async with app.running(database):
        await until(lambda: len(conn.execute(parked).fetchall()) == 3)
    assert conn.execute(parked).fetchall() == [("MALFORMED_EVENT",), ("MALFORMED_EVENT",), ("UNKNOWN_TYPE",)]


@pytest.mark.parametrize("kind", ["async", "deaf", "def"])
async def test_a_handler_that_hangs_is_cut_off_and_its_transaction_ends(
    conn: Connection, database: str, kind: str
) -> None:
    app, source, ended = App(), ScriptedSource(), asyncio.Event()

    async def hang(conn: AsyncConnection, event: Event) -> None:
        await write(conn, event)
        if event.id == "hangs" and kind == "async":
            await conn.execute("SELECT pg_sleep(60)")
        while event.id == "hangs" and not ended.is_set():  # deaf: it ignores that it is cancelled
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.05)

    def hang_in_thread(conn: Connection, event: Event) -> None:
        conn.execute("INSERT INTO effect (event) VALUES (%s)", [event.id])
        if event.id == "hangs":
            time.sleep(6)

    handler = hang_in_thread if kind == "def" else hang
    app.consumer("billing", source=source, timeout_seconds=0.5, concurrency=2)(handler)
    source.put("hangs")
    for n in range(10):
        source.put(f"e-{n}")
    async with working(app, database) as seen:
        await until(lambda: len(source.acknowledged) == 11)
    assert len(effects(conn)) == 10
    assert [v["code"] for n, v in seen if n == "consumer.deferred"] == ["CONSUMER_TIMEOUT"]
    idle = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in%%'"
    await until(lambda: conn.execute(idle.encode()).fetchone() == (0,))
    ended.set()
    await asyncio.sleep(0.1)


async def test_a_constraint_that_waits_for_the_commit_defers_too(conn: Connection, database: str) -> None:
    conn.execute("ALTER TABLE effect ADD UNIQUE (event) DEFERRABLE INITIALLY DEFERRED")
    app, source = App(), ScriptedSource()

    @app.consumer("billing", source=source)
    async def billing(conn: AsyncConnection, event: Event) -> None:
        await conn.execute("INSERT INTO effect (event) VALUES ('same')")

    source.put("e-1")
    source.put("e-2")
    async with working(app, database):
        await until(lambda: len(source.acknowledged) == 2)
    assert effects(conn) == ["same"]
    assert sorted(outcomes(conn).values()) == ["deferred", "processed"]


async def test_the_inbox_row_is_of_the_handlers_own_transaction(conn: Connection, database: str) -> None:
    """A connection that breaks takes both with it: the message is not seen, but processed again."""
    app, source, calls = App(), ScriptedSource(), list[str]()

    @app.consumer("billing", source=source)
    async def billing(conn: AsyncConnection, event: Event) -> None:
        calls.append(event.id)
        await write(conn, event)
        if len(calls) == 1:
            await conn.close()
            raise RuntimeError

    source.put("e-1")
    async with working(app, database):
        await until(lambda: source.acknowledged == ["e-1"])
    assert calls == ["e-1", "e-1"]
    assert effects(conn) == ["e-1"]


def consumer(source: ScriptedSource, **options: Any) -> Consumer:
    values: dict[str, Any] = {"types": None, "order": "subject", "timeout_seconds": 5.0, "concurrency": 2, **options}
    return Consumer(name="billing", source=source, handler=write, **values)


async def test_while_the_database_is_away_nothing_is_acknowledged_and_little_received() -> None:
    source, tries, is_away = ScriptedSource(), list[str](), True

    async def receive(arrived: Any) -> Result:
        tries.append(arrived.message_id)
        if is_away:
            raise DatabaseAway
        return Result(Kind.PROCESSED)

    for n in range(50):
        source.put(f"e-{n}")
    worker = ConsumerWorker(
        consumer(source, prefetch=5), source, receive, clock=SystemClock(), events=Events(), stop_seconds=5
    )
    task = asyncio.create_task(worker.run())
    await until(lambda: len(tries) >= 6)
    assert source.acknowledged == []
    assert source.received.total() == 5
    assert len(tries) < 20  # no busy loop
    is_away = False
    await until(lambda: len(source.acknowledged) == 50)
    worker.stop()
    await task


async def test_messages_of_a_key_are_processed_in_order_and_others_side_by_side() -> None:
    source, running, order = ScriptedSource(), set[str](), list[str]()
    most = 0

    async def receive(arrived: Any) -> Result:
        nonlocal most
        key = arrived.order_by
        assert key not in running
        running.add(key)
        most = max(most, len(running))
        await asyncio.sleep(0.001)
        running.discard(key)
        order.append(arrived.event.id)
        return Result(Kind.PROCESSED)

    for n in range(60):
        source.put(f"{n:02}", subject=f"k{n // 20}")
    worker = ConsumerWorker(consumer(source), source, receive, clock=SystemClock(), events=Events())
    task = asyncio.create_task(worker.run())
    await until(lambda: len(source.acknowledged) == 60)
    worker.stop()
    await task
    for key in range(3):
        own = [one for one in order if int(one) // 20 == key]
        assert own == sorted(own)
    assert most == 2


async def test_a_stop_finishes_what_has_begun_and_gives_the_rest_back() -> None:
    source, go = ScriptedSource(), asyncio.Event()

    async def receive(arrived: Any) -> Result:
        await go.wait()
        return Result(Kind.PROCESSED)

    for n in range(6):
        source.put(f"e-{n}")
    worker = ConsumerWorker(consumer(source), source, receive, clock=SystemClock(), events=Events())
    task = asyncio.create_task(worker.run())
    await until(lambda: worker.in_hand == 6)
    await asyncio.sleep(0.01)
    worker.stop()
    go.set()
    await task
    assert sorted(source.acknowledged) == ["e-0", "e-1"]
    assert set(source.given_back) == {"e-2", "e-3", "e-4", "e-5"}


BIG = {"text": "x" * 300_000}  # more than the engine can hold
PARKED = "SELECT error_class FROM redrive.parked"


def failing_app(source: ScriptedSource, failing: set[str], **options: Any) -> App:
    app = App()

    @app.consumer("billing", source=source, order="subject", concurrency=2, **options)
    async def billing(conn: AsyncConnection, event: Event) -> None:
        await write(conn, event)
        if event.id in failing:
            raise ZeroDivisionError

    return app


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redrive.consume.worker.RESTS_SECONDS", (0.05, 0.1))


@pytest.mark.usefixtures("_impatient")
async def test_what_is_behind_a_failed_event_that_the_engine_cannot_hold_waits_for_it(
    conn: Connection, database: str
) -> None:
    source, failing = ScriptedSource(), {"big"}
    app = failing_app(source, failing, prefetch=4)
    source.put("big", BIG, subject="a")
    for n in range(1, 20):
        source.put(f"a-{n:02}", subject="a")
        source.put(f"b-{n:02}", subject="b")
    async with working(app, database) as seen:
        await until(lambda: len(source.acknowledged) == 38)  # its neighbours go on, whatever `prefetch` is
        assert effects(conn) == [f"b-{n:02}" for n in range(1, 20)]
        async with app.running(database):
            await until(lambda: conn.execute(PARKED).fetchall() == [("EVENT_TOO_LARGE",)])
            given_back = len(source.given_back)
            await until(lambda: len(source.given_back) > given_back + 1)  # tried again, and again not deferred
            assert [one for one in effects(conn) if one.startswith("a-")] == []
            failing.clear()
            await until(lambda: len(effects(conn)) == 39)
        await until(lambda: "big" in source.acknowledged)
    assert [one for one in effects(conn) if not one.startswith("b-")] == ["big", *(f"a-{n:02}" for n in range(1, 20))]
    assert conn.execute(PARKED).fetchall() == []
    assert set(outcomes(conn).values()) == {"processed", "deferred"}
    assert [v["tries"] for n, v in seen if n == "consumer.reserved"][:2] == [1, 2]


@pytest.mark.usefixtures("_impatient")
async def test_its_place_is_kept_for_other_workers_and_through_a_restart(conn: Connection, database: str) -> None:
    first, second, failing = ScriptedSource(), ScriptedSource(), {"big"}
    first.put("big", BIG, subject="a")
    async with working(failing_app(first, failing), database):
        await until(lambda: "big" in first.given_back)
    failing.clear()
    second.put("a-1", subject="a")
    app = failing_app(second, failing)
    async with working(app, database), app.running(database):
        await until(lambda: second.acknowledged == ["a-1"])
        await until(lambda: conn.execute(PARKED).fetchall() == [("EVENT_TOO_LARGE",)])
        assert effects(conn) == []
        second.put("big", BIG, subject="a")  # it comes again, here
        await until(lambda: len(effects(conn)) == 2)
    assert effects(conn) == ["big", "a-1"]


@pytest.mark.usefixtures("_impatient")
async def test_an_event_whose_place_a_person_discards_is_given_up_and_its_key_goes_on(
    conn: Connection, database: str
) -> None:
    source = ScriptedSource()
    app = failing_app(source, {"big"})
    source.put("big", BIG, subject="a")
    source.put("a-1", subject="a")
    async with working(app, database), app.running(database):
        await until(lambda: conn.execute(PARKED).fetchall() == [("EVENT_TOO_LARGE",)])
        await asyncio.to_thread(conn.execute, "SELECT redrive.discard_1(id, 'ops', 'too large') FROM redrive.parked")
        await until(lambda: sorted(source.acknowledged) == ["a-1", "big"])
        await until(lambda: effects(conn) == ["a-1"])


@pytest.mark.usefixtures("_impatient")
async def test_an_event_that_cannot_be_read_and_is_too_large_is_parked_too(conn: Connection, database: str) -> None:
    app, source = App(), ScriptedSource()
    app.consumer("billing", source=source)(write)
    source.put_raw("big", b"x" * 300_000)
    async with working(app, database), app.running(database):
        await until(lambda: conn.execute(PARKED).fetchall() == [("EVENT_TOO_LARGE",)])
    assert source.acknowledged == []
    assert outcomes(conn) == {"big": "reserved"}


async def test_an_event_that_cannot_be_deferred_rests_longer_each_time_and_occupies_no_handler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, rests = ScriptedSource(), list[float]()
    monkeypatch.setattr("redrive.consume.worker.RESTS_SECONDS", (0.01, 0.02, 0.03))

    class Clock(SystemClock):
        async def sleep(self, seconds: float) -> None:
            rests.append(seconds)
            await super().sleep(seconds)

    async def receive(arrived: Any) -> Result:
        return Result(Kind.RESERVED, "EVENT_TOO_LARGE") if arrived.event.id == "big" else Result(Kind.PROCESSED)

    source.put("big")
    worker = ConsumerWorker(consumer(source, concurrency=1), source, receive, clock=Clock(), events=Events())
    task = asyncio.create_task(worker.run())
    await until(lambda: len(source.given_back) >= 4)
    source.put("e-1")
    await until(lambda: source.acknowledged == ["e-1"])
    assert rests[:4] == [0.01, 0.02, 0.03, 0.03]
    worker.stop()
    await task


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"types": "placed"}, "types of 'billing' is a text"),
        ({"types": set()}, "types of 'billing' is empty"),
        ({"order": "key"}, "order of 'billing'"),
        ({"prefetch": 0}, "prefetch of 'billing'"),
    ],
)
def test_a_wrong_declaration_is_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidValue, match=says):
        App().consumer("billing", source=ScriptedSource, **options)(write)


async def test_a_worker_runs_only_consumers_that_there_are(database: str) -> None:
    app = App()
    with pytest.raises(SettingsError, match="no consumer"):
        await run_worker(WorkerProcess(app=app, dsn=database))
    app.consumer("billing", source=ScriptedSource)(write)
    with pytest.raises(NotFound, match="it has: billing"):
        await run_worker(WorkerProcess(app=app, dsn=database, only=["search"]))
