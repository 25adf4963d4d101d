"""A relay that sleeps is woken by whoever has work for it, long before its poll (G-08)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, LiteralString

import psycopg
import pytest

from redrive.app import App
from redrive.message import Attempt
from redrive.operate.findings import findings
from redrive.policy import Settlement
from redrive.relay.wakeup import listening, poll_schedule
from redrive.relay.wakeup.idle import BUSY_AFTER_FULL, BUSY_AFTER_MESSAGES
from redrive.settings import RelayLimits
from redrive.store.reads.status import status as read_status
from redrive.store.runtime.postgres import PostgresStore
from tests.relay.harness import Gate, Running, Seen, enqueue, relaying, states
from tests.support.bells import Ear

pytestmark = pytest.mark.req("G-08")

POLL_SECONDS = 60.0
SLOW: dict[str, Any] = {"poll_seconds": POLL_SECONDS, "lease_seconds": 100.0}
CUT: LiteralString = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE application_name = 'redrive listener' AND datname = current_database()"
)


def declare(app: App, *names: str, concurrency: int = 50) -> App:
    for name in names:

        @app.destination(name, concurrency=concurrency)
        async def handle(attempt: Attempt) -> None: ...

    return app


@asynccontextmanager
async def sleeping(store: PostgresStore, app: App, dsn: str, **limits: Any) -> AsyncIterator[Running]:
    """A relay that would not look again for a minute, and wants to be rung."""
    async with relaying(store, app, listen_dsn=dsn, **{**SLOW, **limits}) as relay:
        await asleep(relay)
        yield relay


async def asleep(relay: Running) -> None:
    queues = relay.relay._queues

    def is_asleep() -> bool:
        soon = asyncio.get_running_loop().time() + POLL_SECONDS / 2
        bell = relay.relay._doorbell
        return all(queue.poll.look_at > soon and bell.rings_for(name) for name, queue in queues.items())

    await relay.seen.that(is_asleep, what="the relay to sleep")


async def test_a_message_wakes_a_sleeping_relay_long_before_its_poll(
    database: str, store: PostgresStore, app: App
) -> None:
    async with sleeping(store, declare(app, "shop"), database) as relay:
        for count in range(1, 4):
            await enqueue(store)
            await relay.seen.until("message.delivered", count=count)


async def test_a_message_that_comes_while_it_lies_down_is_found_by_one_more_look(
    database: str, store: PostgresStore, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its producer looked before the relay asked to be rung; nothing but that look can find it before the poll."""
    monkeypatch.setattr(poll_schedule, "STEPS_SECONDS", (0.01,))
    seen = Seen()

    def enqueue_unheard(name: str, values: object) -> None:
        with psycopg.connect(database) as conn:
            assert conn.execute("SELECT count(*) FROM redrive.doorbell").fetchone() == (0,)
            conn.execute("SELECT redrive.enqueue_1('shop', '{}')")
        end()

    end = seen.events.subscribe(enqueue_unheard, "announce_idle.start")
    async with relaying(store, declare(app, "shop"), seen=seen, listen_dsn=database, **SLOW):
        await seen.until("message.delivered")


async def test_what_was_enqueued_before_and_is_committed_after_is_found_by_the_poll(
    database: str, store: PostgresStore, app: App
) -> None:
    async with relaying(store, declare(app, "shop"), listen_dsn=database) as relay:
        with psycopg.connect(database) as conn:
            conn.execute("SELECT redrive.enqueue_1('shop', '{}')")  # nobody sleeps yet: it does not ring
            await relay.seen.until("announce_idle.stop")
        await relay.seen.until("message.delivered")


async def test_no_producer_notifies_while_work_keeps_coming(database: str, store: PostgresStore, app: App) -> None:
    gate = Gate()

    @app.destination("shop", concurrency=BUSY_AFTER_MESSAGES)
    async def handle(attempt: Attempt) -> None:
        await gate(attempt.id)

    async with sleeping(store, app, database) as relay:
        await enqueue(store, BUSY_AFTER_MESSAGES)  # they take all its room, so that it does not look again
        await relay.seen.that(
            lambda: bool(relay.seen.of("announce_idle.stop", count=0)), what="it to say that it is awake"
        )
        with Ear(database) as ear:
            for _ in range(10):
                await enqueue(store)
            assert ear.rings() == 0
        gate.open()
        await relay.seen.until("message.delivered", count=BUSY_AFTER_MESSAGES + 10)


async def test_no_producer_notifies_while_all_slots_are_taken(database: str, store: PostgresStore, app: App) -> None:
    gate, free = Gate(), BUSY_AFTER_FULL

    @app.destination("shop", concurrency=1)
    async def handle(attempt: Attempt) -> None:
        nonlocal free
        free -= 1
        if free < 0:
            await gate(attempt.id)

    async with sleeping(store, app, database, claim_max=1) as relay:
        await enqueue(store, 2 * BUSY_AFTER_FULL)
        await relay.seen.that(lambda: gate.inside == 1, what="the one slot to be held up")
        with Ear(database) as ear:
            await enqueue(store)
            assert ear.rings() == 0
        gate.open()
        await relay.seen.until("message.delivered", count=2 * BUSY_AFTER_FULL + 1)


async def test_one_destination_that_is_busy_does_not_silence_another(
    database: str, store: PostgresStore, app: App
) -> None:
    gate = Gate()

    @app.destination("slow", concurrency=1)
    async def handle(attempt: Attempt) -> None:
        await gate(attempt.id)

    async with sleeping(store, declare(app, "shop"), database) as relay:
        await enqueue(store, 3, destination="slow")
        await relay.seen.that(lambda: gate.inside == 1, what="the slow one to be busy")
        await enqueue(store)
        await relay.seen.until("message.delivered", destination="shop")
        gate.open()


@pytest.mark.req("G-25")
async def test_a_destination_that_is_resumed_is_looked_at_at_once(
    database: str, store: PostgresStore, app: App
) -> None:
    await store.pause("shop", actor="ann", reason="down")
    await enqueue(store)
    async with relaying(store, declare(app, "shop"), listen_dsn=database, **SLOW) as relay:
        await relay.seen.until("destination.paused")
        relay.relay._context.limits = RelayLimits(**SLOW, heartbeat_seconds=30)
        await relay.seen.next("heartbeat.stop")  # the last for a long time
        await store.resume("shop", actor="ann", reason="up")
        await relay.seen.until("message.delivered")


@pytest.mark.req("G-07")
async def test_the_next_message_of_a_key_does_not_wait_for_the_poll(store: PostgresStore, app: App) -> None:
    """With a record nothing is handed over, and a look that finds every key busy finds nothing."""

    async def record(conn: Any, attempt: Attempt, settlement: Settlement) -> None: ...

    @app.destination("shop", record=record)
    async def handle(attempt: Attempt) -> None: ...

    await store.rows(
        "SELECT redrive.enqueue_1('shop', '{}', p_order_by => 'k' || n %% 2) FROM generate_series(1, 40) n", []
    )
    async with relaying(store, app, **SLOW) as relay:
        await relay.seen.until("message.delivered", count=40)


async def test_a_line_that_is_cut_is_connected_again_and_hears_what_it_missed(
    database: str, store: PostgresStore, app: App
) -> None:
    async with sleeping(store, declare(app, "shop"), database) as relay:
        assert len(await store.rows(CUT, [])) == 1
        await enqueue(store)
        await relay.seen.until("listener.reconnecting")
        await relay.seen.until("listener.listening", count=2)
        await relay.seen.until("message.delivered")
        await enqueue(store)
        await relay.seen.until("message.delivered", count=2)


async def test_a_line_that_does_not_hear_is_found_out_and_the_relay_polls(
    database: str, server_dsn: str, store: PostgresStore, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connected to another database it takes LISTEN and hears nothing, as behind a pooler."""
    monkeypatch.setattr(listening, "ECHO_ANSWER_SECONDS", 0.2)
    async with relaying(store, declare(app, "shop"), listen_dsn=server_dsn) as relay:
        await relay.seen.until("listener.deaf")
        await enqueue(store, 3)
        await relay.seen.until("message.delivered", count=3)
        await relay.seen.next("heartbeat.stop", count=2)
        status = await read_status(store)
        assert [one.listener for one in status.relays] == ["deaf"]
        assert [found.code for found in findings(status)] == ["relay_deaf"]
        assert relay.seen.of("announce_idle.stop") == []  # producers need not ring for one who does not hear


async def test_a_relay_that_shall_not_listen_only_polls(store: PostgresStore, app: App) -> None:
    async with relaying(store, declare(app, "shop")) as relay:
        await relay.seen.until("relay.idle", count=8)
        await enqueue(store)
        await relay.seen.until("message.delivered")
        await relay.seen.next("heartbeat.stop", count=2)
        assert [one.listener for one in (await read_status(store)).relays] == ["off"]
        assert relay.seen.of("announce_idle.stop") == []


async def test_a_relay_that_has_left_is_not_rung(database: str, store: PostgresStore, app: App) -> None:
    async with sleeping(store, declare(app, "shop"), database):
        pass
    with Ear(database) as ear:
        await enqueue(store)
        assert ear.rings() == 0
    assert await states(store) == {"pending": 1}
