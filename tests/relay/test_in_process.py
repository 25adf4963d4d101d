"""A relay inside another program: it begins with the block, ends with it, and never dies in silence."""

from __future__ import annotations

import asyncio

import pytest

from redrive.app import App
from redrive.errors import NotFound, SchemaError
from redrive.events import Events
from redrive.message import Attempt
from redrive.relay import process
from redrive.store.runtime.postgres import PostgresStore
from tests.relay.harness import enqueue, states


async def nothing(_: Attempt) -> None: ...


async def test_what_is_enqueued_is_delivered_while_the_block_runs_and_the_relay_is_gone_after_it(
    database: str, store: PostgresStore, app: App
) -> None:
    delivered = asyncio.Event()

    @app.destination("shop")
    async def send(_: Attempt) -> None:
        delivered.set()

    async with app.running(database, name="inside"):
        relays = await store.rows("SELECT name FROM redrive.relay", [])
        assert relays == [("inside",)], "it has begun when the block begins"
        await enqueue(store)
        async with asyncio.timeout(20):
            await delivered.wait()
    assert await states(store) == {"delivered": 1}
    assert await store.rows("SELECT name FROM redrive.relay", []) == []


async def test_what_runs_when_the_block_ends_ends_first(database: str, store: PostgresStore, app: App) -> None:
    began = asyncio.Event()

    @app.destination("shop")
    async def send(_: Attempt) -> None:
        began.set()
        await asyncio.sleep(0.3)

    await enqueue(store)
    async with app.running(database):
        async with asyncio.timeout(20):
            await began.wait()
    assert await states(store) == {"delivered": 1}


async def test_a_relay_that_cannot_begin_says_why_and_the_block_does_not(
    server_dsn: str, database: str, app: App
) -> None:
    app.destination("shop")(nothing)
    for dsn, only, error in ((server_dsn, [], SchemaError), (database, ["unknown"], NotFound)):
        with pytest.raises(error):
            async with app.running(dsn, only=only):
                pytest.fail("the block must not begin")


async def test_a_relay_that_fails_ends_the_block_with_its_error(
    database: str, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object, **__: object) -> None:
        await started.wait()
        raise RuntimeError("a duty that cannot go on")

    app.destination("shop")(nothing)
    started = asyncio.Event()
    monkeypatch.setattr(process, "run_duties", fail)
    with pytest.raises(RuntimeError, match="cannot go on"):
        await until_it_fails(database, app, started)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def until_it_fails(database: str, app: App, started: asyncio.Event) -> None:
    async with app.running(database):
        started.set()
        await asyncio.sleep(20)


async def test_an_error_of_the_block_is_its_own_and_the_relay_stops(
    database: str, store: PostgresStore, app: App
) -> None:
    app.destination("shop")(nothing)
    events = Events()
    stopped: list[str] = []
    events.subscribe(lambda name, _: stopped.append(name), "relay.stopped")
    with pytest.raises(ZeroDivisionError):
        async with app.running(database, events=events):
            raise ZeroDivisionError
    assert stopped == ["relay.stopped"]
