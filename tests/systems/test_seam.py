"""Seam S8: a system plugs in as one object, and out by not being there (G-30)."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import psycopg
import pytest

import redrive
import redrive.systems
from redrive.errors import SchemaError
from redrive.events import Events
from redrive.operate.cli.main import cli
from redrive.operate.installed import installed_sets
from redrive.relay.process import RelayProcess, run_relay
from redrive.store.migrations import migrate
from redrive.store.migrations.migrate import MigrationSet
from redrive.system import discover
from redrive.testing import ScriptedSource
from tests.systems import parcels

pytestmark = pytest.mark.req("G-30")


def _sets(app: redrive.App) -> list[MigrationSet]:
    return [MigrationSet(s.name, s.migrations) for s in app.systems.values() if s.migrations is not None]


async def _run_until(dsn: str, app: redrive.App, event: str, **wanted: Any) -> Mapping[str, Any]:
    """Run a relay until the event comes with these values; returns all its values."""
    heard: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
    events = Events()

    def hear(_: str, values: Mapping[str, Any]) -> None:
        if not heard.done() and wanted.items() <= values.items():
            heard.set_result(values)

    events.subscribe(hear, event)
    relay = asyncio.create_task(run_relay(RelayProcess(app=app, dsn=dsn), events=events, signals=False))
    try:
        working: list[asyncio.Future[Any]] = [heard, relay]
        await asyncio.wait(working, timeout=30, return_when=asyncio.FIRST_COMPLETED)
        if relay.done():
            relay.result()
        return heard.result()
    finally:
        relay.cancel()
        await asyncio.gather(relay, return_exceptions=True)


def test_a_system_brings_its_consumers_and_their_destinations() -> None:
    declaring, app = redrive.App(), redrive.App()
    declaring.consumer("parcels.arrivals", source=ScriptedSource())(lambda _conn, _event: None)
    brought = [*declaring.destinations.values()], [*declaring.consumers.values()]
    app.include(redrive.System(name="parcels", destinations=brought[0], consumers=brought[1]))
    assert app.consumers == declaring.consumers
    assert set(app.destinations) == {"parcels.arrivals"}


async def test_a_system_brings_its_tables_destination_record_and_duty(database: str) -> None:
    app = redrive.App()
    app.include(parcels.system)
    upgraded = migrate.upgrade(database, sets=_sets(app))
    assert [step.name for step in upgraded.applied] == ["parcels/tables/001_pre_shipped.sql"]
    with psycopg.connect(database) as conn:
        redrive.enqueue(conn, "parcels.ship", {"parcel": "p-1"})
    await _run_until(database, app, "message.delivered", destination="parcels.ship")
    with psycopg.connect(database) as conn:
        assert conn.execute("SELECT * FROM parcels.shipped").fetchall() == [("p-1", "track-p-1")]
    assert "p-1" in parcels.SHIPPED


async def test_a_systems_duty_is_run_by_the_relay(database: str) -> None:
    app = redrive.App()
    app.include(parcels.system)
    migrate.upgrade(database, sets=_sets(app))
    ran = await _run_until(database, app, "duty.stop", duty="parcels.count")
    assert "shipped at" in ran["result"]


async def test_a_relay_refuses_to_start_before_its_systems_tables_are_there(database: str) -> None:
    app = redrive.App()
    app.include(parcels.system)
    with pytest.raises(SchemaError, match="redrive db upgrade"):
        await run_relay(RelayProcess(app=app, dsn=database), signals=False)


def test_without_the_system_nothing_of_it_is_there(database: str) -> None:
    app = redrive.App()
    assert app.destinations == {}
    assert app.duties == {}
    assert migrate.check(database).state == "current"
    with psycopg.connect(database) as conn:
        assert conn.execute("SELECT to_regclass('parcels.shipped')").fetchone() == (None,)


def test_a_system_is_found_by_its_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offered = tmp_path / "parcels-1.0.dist-info"
    offered.mkdir()
    (offered / "METADATA").write_text("Metadata-Version: 2.1\nName: parcels\nVersion: 1.0\n")
    (offered / "entry_points.txt").write_text("[redrive.systems]\nparcels = tests.systems.parcels:system\n")
    assert "parcels" not in discover()
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert discover()["parcels"] is parcels.system


def test_a_system_that_comes_with_redrive_is_its_folder_and_gone_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "payments" in discover()
    assert "payments" in cli.list_commands(click.Context(cli))
    monkeypatch.setattr(redrive.systems, "__path__", [])
    assert discover() == {}
    assert installed_sets() == []
    assert "payments" not in cli.list_commands(click.Context(cli))


def test_a_system_cannot_be_included_twice() -> None:
    app = redrive.App()
    app.include(parcels.system)
    with pytest.raises(redrive.InvalidValue, match="twice"):
        app.include(parcels.system)
