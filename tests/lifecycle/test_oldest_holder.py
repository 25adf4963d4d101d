"""Who keeps dead rows alive is named in `status`, and after an hour needs a person (DESIGN §6)."""

from __future__ import annotations

from datetime import timedelta

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from rich.console import Console

from redrive.operate.cli.status import page
from redrive.operate.findings import described, findings
from redrive.store.reads.status import Holder, Status
from redrive.store.reads.status import status as read_status
from redrive.store.runtime.postgres import PostgresStore
from tests.support import messages as m

pytestmark = pytest.mark.req("G-05")


def shown(status: Status) -> str:
    console = Console(width=300)
    with console.capture() as captured:
        for part in page(status):
            console.print(part)
    return captured.get()


async def later(store: PostgresStore, seconds: float) -> Status:
    return await read_status(store, now=await store.now() + timedelta(seconds=seconds))


async def test_a_session_that_forgot_its_transaction_is_named(database: str, store: PostgresStore) -> None:
    with psycopg.connect(make_conninfo(database, application_name="reports")) as forgetful:
        forgetful.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        forgetful.execute("SELECT count(*) FROM redrive.pending")
        status = await read_status(store)
        holder = status.oldest_holder
        assert holder is not None
        assert (holder.kind, holder.pid, holder.application, holder.state) == (
            "session",
            forgetful.info.backend_pid,
            "reports",
            "idle in transaction",
        )
        assert "Dead rows" not in shown(status)
        after_a_minute = await later(store, 61)
        assert f"session {holder.pid} (reports, idle in transaction)" in shown(after_a_minute)
        assert [found.code for found in findings(after_a_minute)] == []
        (found,) = findings(await later(store, 3601))
        assert found.code == "old_snapshot"
        assert f"pg_terminate_backend({holder.pid})" in found.next
    assert "Dead rows" not in shown(await later(store, 61))


async def test_a_reader_who_may_not_see_other_logins_sees_at_least_which_session_it_is(database: str) -> None:
    viewer = make_conninfo(database, options="-c role=redrive_viewer -c redrive.tenant=*")
    with psycopg.connect(make_conninfo(database, application_name="reports")) as forgetful:
        forgetful.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        forgetful.execute("SELECT count(*) FROM redrive.pending")
        async with PostgresStore(viewer, connections=1) as store:
            holder = (await read_status(store)).oldest_holder
        assert holder is not None
        assert (holder.pid, holder.application) == (forgetful.info.backend_pid, "reports")
        assert (holder.state, holder.since) == (None, None)


def test_autovacuum_is_known_by_its_lack_of_a_user_also_to_those_who_may_not_see_what_it_is(database: str) -> None:
    """The launcher stands for its workers, which come and go."""
    launchers = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'autovacuum launcher'"
    has_no_user = "SELECT usesysid IS NULL FROM pg_stat_activity WHERE pid = %s"
    with psycopg.connect(database) as owner, psycopg.connect(database, options="-c role=redrive_viewer") as viewer:
        launcher = owner.execute(launchers).fetchone()
        assert launcher is not None
        for conn in (owner, viewer):
            assert conn.execute(has_no_user, launcher).fetchall() == [(True,)]
        assert viewer.execute(has_no_user, [owner.info.backend_pid]).fetchall() == [(False,)]


async def test_sessions_of_other_databases_do_not_count(server_dsn: str, store: PostgresStore) -> None:
    with psycopg.connect(server_dsn) as elsewhere:
        elsewhere.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        elsewhere.execute("SELECT count(*) FROM pg_class")
        holder = (await read_status(store)).oldest_holder
        assert holder is None or holder.pid != elsewhere.info.backend_pid


def status(holder: Holder) -> Status:
    return Status(at=m.at(), backlog=[], relays=[], duties=[], late_answers=0, oldest_holder=holder)


def test_a_prepared_transaction_is_ended_by_its_name() -> None:
    since = m.at() - timedelta(hours=2)
    holder = Holder(
        kind="prepared transaction", name="it's 7", pid=None, application=None, state=None, since=since, age=5
    )
    assert described(holder) == "prepared transaction it's 7"
    (found,) = findings(status(holder))
    assert "ROLLBACK PREPARED 'it''s 7'" in found.next


@pytest.mark.parametrize(("age", "codes"), [(999_999, []), (1_000_000, ["old_snapshot"])])
def test_of_a_slot_only_the_age_in_transactions_is_known(age: int, codes: list[str]) -> None:
    holder = Holder(
        kind="replication slot", name="standby", pid=None, application=None, state="inactive", since=None, age=age
    )
    found = findings(status(holder))
    assert [one.code for one in found] == codes
    assert all("pg_drop_replication_slot('standby')" in one.next for one in found)
