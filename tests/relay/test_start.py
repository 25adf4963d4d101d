"""Starting: refused with a clear word where it cannot work, registered where it can, and seen by everybody (G-29)."""

from __future__ import annotations

import asyncio

import psycopg
import pytest
from psycopg import sql

from redrive.app import App
from redrive.errors import ActRefused, NotFound, SchemaError, SettingsError
from redrive.message import Attempt, ParkReason
from redrive.ports import ClaimRequest
from redrive.relay.process import RelayProcess, _store, run_relay
from redrive.settings import RelayLimits
from redrive.store.reads.status import status as read_status
from redrive.store.runtime.postgres import PostgresStore
from redrive.system import System
from redrive.transports.http import Egress, HttpTransport
from tests.relay.harness import QUICK, SECONDS_MAX, Seen, enqueue, processing
from tests.support import messages as m
from tests.systems import parcels


def declare(app: App, *names: str) -> App:
    for name in names:

        @app.destination(name)
        async def handle(attempt: Attempt) -> None: ...

    return app


async def start(dsn: str, app: App, *only: str) -> None:
    """Must refuse; a relay that runs is the failure."""
    process = RelayProcess(app=app, dsn=dsn, only=only, limits=RelayLimits(**QUICK))
    async with asyncio.timeout(SECONDS_MAX):
        await run_relay(process, signals=False)


@pytest.mark.req("G-19")
async def test_a_database_without_the_schema_is_refused(empty_database: str, app: App) -> None:
    with pytest.raises(SchemaError, match=r"^The schema is absent\. .* Next: redrive db upgrade$"):
        await start(empty_database, declare(app, "shop"))


LAST_IS_MISSING = """
DELETE FROM redrive.schema_version
 WHERE number_or_file = (SELECT max(number_or_file) FROM redrive.schema_version WHERE number_or_file ~ '^[0-9]+$')
"""


@pytest.mark.req("G-19")
@pytest.mark.parametrize(
    ("change", "state"),
    [
        pytest.param(LAST_IS_MISSING, "behind", id="the last is missing"),
        ("UPDATE redrive.schema_version SET checksum = 'other' WHERE number_or_file = '001'", "changed"),
        ("DELETE FROM redrive.schema_version WHERE number_or_file LIKE 'claim%'", "behind"),
    ],
)
async def test_a_database_of_another_version_is_refused(database: str, app: App, change: str, state: str) -> None:
    with psycopg.connect(database) as conn:
        assert conn.execute(change.encode()).rowcount > 0
    with pytest.raises(SchemaError, match=f"The schema is {state}"):
        await start(database, declare(app, "shop"))


@pytest.mark.req("G-19")
async def test_a_system_whose_tables_are_not_there_is_refused(database: str, app: App) -> None:
    app.include(System(name="parcels", migrations=parcels.system.migrations))
    with pytest.raises(SchemaError, match="parcels"):
        await start(database, declare(app, "shop"))


@pytest.mark.req("G-19")
async def test_a_destination_that_the_app_does_not_have_is_refused(database: str, app: App) -> None:
    with pytest.raises(NotFound, match="'erp' is not declared in this app; it has: mail, shop"):
        await start(database, declare(app, "shop", "mail"), "erp")


@pytest.mark.req("G-19")
async def test_an_app_without_a_destination_is_refused(database: str, app: App) -> None:
    with pytest.raises(SettingsError, match="declares no destination"):
        await start(database, app)


async def test_a_login_with_the_role_of_a_relay_and_no_other_is_enough(
    database: str, store: PostgresStore, app: App
) -> None:
    await enqueue(store, 3)
    name = psycopg.conninfo.conninfo_to_dict(database)["dbname"]
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(f'ALTER DATABASE "{name}" SET role = redrive_relay'.encode())  # every session from now on
    async with processing(database, declare(app, "shop")) as seen:
        await seen.until("message.delivered", count=3)
        await seen.until("end_duty.stop", duty="partitions")
        assert seen.of("duty.failed") == []


@pytest.mark.req("G-29")
async def test_what_no_live_relay_handles_is_shown(database: str, store: PostgresStore, app: App) -> None:
    await enqueue(store, 2, destination="nobody")
    assert (await read_status(store)).unhandled == ["nobody"]
    async with processing(database, declare(app, "shop")) as seen:
        await seen.until("relay.started")
        status = await read_status(store)
        assert status.unhandled == ["nobody"]
        (relay,) = [relay for relay in status.relays if relay.live]
        assert (relay.name, list(relay.destinations)) == ("test", ["shop"])
    assert (await read_status(store)).relays == []


@pytest.mark.req("G-29")
async def test_a_relay_whose_row_is_gone_registers_again(database: str, store: PostgresStore, app: App) -> None:
    async with processing(database, declare(app, "shop")) as seen:
        await seen.until("relay.started")
        await store.rows("DELETE FROM redrive.relay RETURNING 1", [])
        await seen.until("register.stop", count=2)
        assert len((await read_status(store)).relays) == 1


async def test_a_database_that_is_away_at_the_start_is_waited_for(app: App) -> None:
    seen = Seen()
    process = RelayProcess(app=declare(app, "shop"), dsn="host=127.0.0.1 port=1 dbname=x", limits=RelayLimits(**QUICK))
    task = asyncio.create_task(run_relay(process, events=seen.events, signals=False))
    await seen.until("relay.unreachable", count=2, during="start")
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


@pytest.mark.parametrize(("record_timeout_seconds", "expected"), [(10, 30), (600, 615)])
def test_a_record_has_the_time_that_was_set_for_it(app: App, record_timeout_seconds: float, expected: float) -> None:
    """The store's own limit for a verb must not end it before."""
    limits = RelayLimits(record_timeout_seconds=record_timeout_seconds)
    assert _store(RelayProcess(app=app, dsn="", limits=limits), "x")._timeout_seconds == expected


# money


def money(app: App, url: str) -> App:
    transport = HttpTransport(url, egress=Egress(allow=["127.0.0.0/8"], schemes=frozenset({"http"})))
    app.transport("bank", transport, money=True, in_doubt="hold")
    return app


OLD, NEW = "http://127.0.0.1:9/old", "http://127.0.0.1:9/new"


@pytest.mark.req("P-05")
async def test_another_address_is_refused_while_money_is_in_doubt_there(database: str) -> None:
    """Asked at another place, a payment in doubt would seem never to have been made."""
    async with processing(database, money(App(), OLD)) as seen:
        await seen.until("relay.started")
    async with PostgresStore(database) as store:
        id = await m.enqueue(store, destination="bank", now=None)
        held = m.park(ParkReason.HELD)
        (claimed,) = (await store.claim(m.WORKER, [ClaimRequest("bank", 1, 1)], lease_seconds=60)).attempts
        await store.settle(m.WORKER, [m.outcome(claimed, held)])
        with pytest.raises(SettingsError, match=r"address .* of 'bank' has changed.* in doubt.* Next: start the relay"):
            await start(database, money(App(), NEW))
        async with processing(database, money(App(), OLD)) as seen:
            await seen.until("relay.started")
        with pytest.raises(ActRefused, match="second person"):
            await store.confirm(id, actor="ada", reason="seen on the statement")
        await store.confirm(id, actor="ben", reason="seen on the statement")
        async with processing(database, money(App(), NEW)) as seen:
            await seen.until("relay.started")


@pytest.mark.req("P-05")
async def test_two_relays_with_two_addresses_do_not_move_the_same_money(database: str) -> None:
    async with processing(database, money(App(), OLD)) as seen:
        await seen.until("relay.started")
        with pytest.raises(SettingsError, match="another relay that was seen within a minute uses another address"):
            await start(database, money(App(), NEW))


@pytest.mark.req("P-05")
async def test_a_relay_that_moves_money_refuses_commits_that_a_crash_can_lose(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(sql.SQL("ALTER DATABASE {} SET synchronous_commit = off").format(sql.Identifier(conn.info.dbname)))
    with pytest.raises(SettingsError, match=r"synchronous_commit is off .* 'bank' moves money.* Next: ALTER ROLE"):
        await start(database, money(App(), OLD))
    seen = Seen()
    async with processing(database, declare(App(), "shop"), seen=seen):
        await seen.until("relay.started")
    allowed = RelayProcess(
        app=money(App(), OLD), dsn=database, limits=RelayLimits(**QUICK), allow_asynchronous_commit=True
    )
    running = asyncio.create_task(run_relay(allowed, events=seen.events, signals=False))
    await seen.until("relay.started", count=2)
    running.cancel()
    await asyncio.wait([running], timeout=SECONDS_MAX)
    assert seen.of("relay.asynchronous_commit", destinations=["bank"])
