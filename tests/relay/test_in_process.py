"""A relay inside another program: it begins with the block, ends with it, and never dies in silence."""

from __future__ import annotations

import asyncio
import json
import logging
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from redrive.app import App
from redrive.errors import NotFound, SchemaError, SettingsError
from redrive.events import Events
from redrive.message import Attempt
from redrive.operate.observe import observing
from redrive.relay import in_process, process
from redrive.relay.process import RelayProcess
from redrive.settings import TABLE, RelayLimits, Settings
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


# Every setting that a relay reads: a value that is not the default, and what a relay that has it shows.
HONOURED: dict[str, tuple[Any, str, Any]] = {
    "lease_seconds": (33.0, "limits.lease_seconds", 33.0),
    "reap_every_seconds": (2.0, "limits.reap_every_seconds", 2.0),
    "heartbeat_seconds": (1.0, "limits.heartbeat_seconds", 1.0),
    "record_timeout_seconds": (3.0, "limits.record_timeout_seconds", 3.0),
    "concurrency": (7, "limits.concurrency", 7),
    "claim_max": (9, "limits.claim_max", 9),
    "horizon_seconds": (0.1, "limits.horizon_seconds", 0.1),
    "poll_seconds": (0.5, "limits.poll_seconds", 0.5),
    "stop_seconds": (4.0, "limits.stop_seconds", 4.0),
    "wakeup": ("poll", "listen", False),
    "listen_dsn": ("host=direct", "listen_dsn", "host=direct"),
    "state_directory": (Path("state"), "state_directory", Path("state")),
    "asynchronous_commit": ("warn", "allow_asynchronous_commit", True),
    "partition_days": (3, "partition_days", 3),
    "partitions_ahead": (2, "partitions_ahead", 2),
    "retention_days": (30, "retention_days", 30),
    "inbox_retention_days": (7, "inbox_retention_days", 7),
}
SERVED = {"metrics_listen", "metrics_every_seconds", "stalled_seconds"}  # beside the relay; tested below


def test_every_setting_of_a_relay_is_looked_at_here() -> None:
    of_a_relay = {name for name, row in TABLE.items() if row.read_by == "relay"}
    assert HONOURED.keys() | SERVED == of_a_relay
    assert RelayLimits.model_fields.keys() <= HONOURED.keys()


@pytest.mark.parametrize("name", HONOURED)
@pytest.mark.parametrize("by", ["argument", "variable", "file"])
async def test_a_relay_in_a_program_has_the_settings_that_it_is_given(
    by: str, name: str, app: App, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    value, shown, expected = HONOURED[name]
    started: list[RelayProcess] = []

    async def run_relay(process: RelayProcess, *, events: Events, **_: Any) -> None:
        started.append(process)
        events.emit("relay.started")
        await asyncio.sleep(60)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(in_process, "run_relay", run_relay)
    async with app.running("host=db", settings=settings_by(by, name, value, monkeypatch)):
        (given,) = started
    async with app.running("host=db"):
        default = started[-1]
    assert (at(given, shown), at(default, shown) == expected) == (expected, False)


def settings_by(by: str, name: str, value: Any, monkeypatch: pytest.MonkeyPatch) -> Settings:
    if by == "argument":
        return Settings(**{name: value})
    if by == "variable":
        monkeypatch.setenv(TABLE[name].variable, str(value))
    else:
        Path("redrive.toml").write_text(f"{name} = {json.dumps(value, default=str)}\n")
    return Settings.load()


def at(process: RelayProcess, path: str) -> Any:
    found: Any = process
    for name in path.split("."):
        found = getattr(found, name)
    return found


async def test_a_relay_in_a_program_serves_metrics_and_logs_advice(
    database: str, app: App, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {}
    serve = observing.observing

    @asynccontextmanager
    async def noting(*arguments: Any, **options: Any) -> AsyncIterator[Any]:
        given.update(options)
        async with serve(*arguments, **options) as address:
            given["address"] = address
            yield address

    caplog.set_level(logging.WARNING, logger="redrive")  # whatever a test before it has set
    monkeypatch.setattr(logging.getLogger("redrive"), "disabled", False)
    app.destination("shop")(nothing)
    monkeypatch.setattr(observing, "observing", noting)
    settings = Settings(
        metrics_listen=0, metrics_every_seconds=2, stalled_seconds=33, lease_seconds=4, heartbeat_seconds=1
    )
    async with app.running(database, settings=settings):
        with await asyncio.to_thread(urllib.request.urlopen, f"http://{given['address']}/livez") as answer:
            assert answer.status == 200
    assert (given["every_seconds"], given["stalled_seconds"]) == (2, 33)
    assert "lease_seconds is 4" in caplog.text


async def test_the_database_may_come_with_the_settings_but_must_be_named(database: str, app: App) -> None:
    app.destination("shop")(nothing)
    async with app.running(settings=Settings(dsn=database)):
        pass
    with pytest.raises(SettingsError, match="No database is named"):
        app.running()
