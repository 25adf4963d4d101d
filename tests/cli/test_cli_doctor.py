"""`redrive doctor`: every point is looked at on a real server, and what is wrong comes with what to do."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from redrive.message import WorkerId
from redrive.operate import doctor
from redrive.operate.doctor import Verdict
from redrive.operate.installed import installed_sets
from redrive.ports import RelayInfo
from redrive.store.migrations import migrate
from redrive.store.reads import doctor as doctor_reads
from redrive.store.runtime.postgres import PostgresStore
from tests.cli.conftest import NOWHERE, Redrive, Shop
from tests.conftest import CrashServer
from tests.support.poolers import pgbouncer


def points(redrive: Redrive, exit_code: int, *options: str) -> dict[str, Any]:
    found = redrive.json("doctor", *options, exit_code=exit_code)["points"]
    assert [point["name"] for point in found] == list(doctor.POINTS), "every point, always"
    return {point["name"]: point for point in found}


def verdicts(found: dict[str, Any]) -> dict[str, str]:
    return {name: point["verdict"] for name, point in found.items() if point["verdict"] != "ok"}


def test_on_a_fresh_database_only_the_superuser_is_too_much(redrive: Redrive) -> None:
    found = points(redrive, 0)
    assert verdicts(found) == {"privileges": "warn"}
    assert "redrive_ roles" in found["privileges"]["next"]
    assert verdicts(points(redrive, 6, "--strict")) == {"privileges": "warn"}


def test_it_is_shown_as_a_table_with_what_to_do_below(redrive: Redrive) -> None:
    result = redrive("doctor")
    assert result.exit_code == 0
    assert "privileges" in result.stdout
    assert "WARN privileges: make a login for each part" in " ".join(result.stdout.split())


def test_without_the_schema_the_rest_is_not_looked_at(server_dsn: str) -> None:
    found = points(Redrive(server_dsn), 6)
    assert found["connection"]["verdict"] == "ok"
    assert found["schema"]["verdict"] == "fail"
    assert found["schema"]["next"] == "redrive db upgrade"
    assert {point["verdict"] for point in list(found.values())[2:]} == {"skipped"}


def test_a_server_that_does_not_answer_fails_the_first_point_and_no_password_is_shown() -> None:
    result = Redrive(NOWHERE)("doctor")
    assert result.exit_code == 6
    assert "FAIL connection" in result.stdout
    assert "geheim" not in result.stdout + result.stderr


def test_a_login_without_a_role_is_told_what_it_needs(redrive: Redrive, restricted: str) -> None:
    result = redrive("doctor", dsn=make_conninfo(redrive.dsn, user=restricted))
    assert result.exit_code == 6
    assert "FAIL schema: GRANT USAGE ON SCHEMA redrive" in result.stdout


def test_the_login_of_a_relay_learns_what_it_may_look_at_and_fails_at_nothing(
    redrive: Redrive, restricted: str, server_dsn: str
) -> None:
    with psycopg.connect(server_dsn, autocommit=True) as connection:
        connection.execute(f'GRANT redrive_relay TO "{restricted}"'.encode())
    found = points(Redrive(make_conninfo(redrive.dsn, user=restricted)), 0)
    assert found["privileges"] == {
        "name": "privileges",
        "verdict": "ok",
        "detail": f"{restricted} has redrive_relay",
        "next": "",
    }
    first = doctor.POINTS.index(doctor.FIRST_READ)
    assert set(verdicts(found)) == set(doctor.POINTS[first:])
    assert {found[name]["verdict"] for name in doctor.POINTS[first:]} == {"skipped"}
    assert "redrive_viewer" in found[doctor.FIRST_READ]["detail"]


@pytest.mark.req("P-13")
@pytest.mark.parametrize(
    ("roles", "verdict", "next"),
    [
        (["redrive_relay"], "warn", 'GRANT redrive_payments TO "{}"'),
        (["redrive_relay", "redrive_payments"], "ok", ""),
        (
            ["redrive_operator", "redrive_payments"],
            "warn",
            'REVOKE redrive_payments FROM "{}": it is for the login of relays',
        ),
        (["redrive_operator"], "ok", ""),
    ],
)
def test_where_payments_are_made_the_login_of_relays_alone_is_a_member_of_their_role(
    redrive: Redrive, restricted: str, roles: list[str], verdict: str, next: str
) -> None:
    with psycopg.connect(redrive.dsn, autocommit=True) as connection:
        for role in roles:
            connection.execute(f'GRANT {role} TO "{restricted}"'.encode())
        connection.execute("INSERT INTO redrive.destination (name, money) VALUES ('payments.sepa', true)")
    result = Redrive(make_conninfo(redrive.dsn, user=restricted))("doctor", "--json")
    (point,) = [one for one in json.loads(result.stdout)["points"] if one["name"] == "privileges"]
    assert (point["verdict"], point["next"]) == (verdict, next.format(restricted))


@pytest.mark.req("G-29")
def test_work_that_nobody_does_fails_with_the_command_that_helps(redrive: Redrive, shop: Shop) -> None:
    found = points(redrive, 6)
    assert found["destinations"]["verdict"] == "fail"
    assert "sms" in found["destinations"]["detail"]
    assert "redrive relay" in found["destinations"]["next"]


def test_relays_that_disagree_about_the_rules_are_named(redrive: Redrive, shop: Shop) -> None:
    async def register(store: PostgresStore, version: str) -> None:
        await store.register(
            RelayInfo(
                worker=WorkerId(uuid4()),
                name=f"r-{version}",
                host="h",
                pid=1,
                version="1",
                destinations=["shop", "sms"],
                policies={"shop": version, "sms": "same"},
            )
        )

    shop.call(lambda store: register(store, "one"))
    shop.call(lambda store: register(store, "two"))
    found = points(redrive, 0)
    assert found["policies"]["verdict"] == "warn"
    assert "shop" in found["policies"]["detail"]
    assert "sms" not in found["policies"]["detail"]


@pytest.fixture
def idle_slot(server_dsn: str) -> Iterator[str]:
    name = f"redrive_test_{secrets.token_hex(4)}"
    with psycopg.connect(server_dsn, autocommit=True) as connection:
        connection.execute("SELECT pg_create_physical_replication_slot(%s, true)", [name])
        yield name
        connection.execute("SELECT pg_drop_replication_slot(%s)", [name])


def test_a_replication_slot_that_nobody_reads_is_named(redrive: Redrive, idle_slot: str) -> None:
    found = points(redrive, 0)["replication slots"]
    assert found["verdict"] == "warn"
    assert idle_slot in found["detail"]


@pytest.mark.full
def test_behind_a_pooler_it_says_that_nothing_is_heard_and_what_to_set(
    crash_server: CrashServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    direct = crash_server(port=0).dsn
    migrate.upgrade(direct, sets=installed_sets())
    with pgbouncer(direct, "transaction") as through:
        behind = Redrive(through)
        found = points(behind, 0)
        assert (found["listen"]["verdict"], found["pooler"]["verdict"]) == ("warn", "warn")
        assert "REDRIVE_LISTEN_DSN" in found["pooler"]["next"]
        monkeypatch.setenv("REDRIVE_LISTEN_DSN", direct)
        found = points(behind, 0)
        assert (found["listen"]["verdict"], found["pooler"]["verdict"]) == ("ok", "ok")


# ---- what a test server cannot be made to show


@pytest.fixture
def server(shop: Shop) -> doctor_reads.Server:
    looked: doctor_reads.Server = shop.call(doctor_reads.server)
    return looked


@pytest.mark.parametrize(
    ("judge", "changes", "verdict"),
    [
        (doctor._server, {"is_standby": True}, Verdict.FAIL),
        (doctor._server, {"version": 140_009}, Verdict.FAIL),
        (doctor._server, {"version": 190_001}, Verdict.WARN),
        (doctor._privileges, {"is_superuser": False, "roles": []}, Verdict.FAIL),
        (doctor._privileges, {"is_superuser": False, "roles": ["redrive_relay"]}, Verdict.OK),
        (doctor._autovacuum, {"has_autovacuum": False}, Verdict.FAIL),
        (doctor._commits, {"commits_synchronously": False}, Verdict.WARN),
        (doctor._commits, {"commits_synchronously": True}, Verdict.OK),
    ],
)
def test_what_is_seen_is_judged(
    server: doctor_reads.Server, judge: Any, changes: dict[str, Any], verdict: Verdict
) -> None:
    point = judge(replace(server, **changes))
    assert point.verdict is verdict
    assert bool(point.next) == (verdict is not Verdict.OK)


@pytest.mark.parametrize(
    ("skew", "asked_seconds", "verdict"), [(3.0, 0.1, Verdict.WARN), (-3.0, 0.1, Verdict.WARN), (3.0, 1.5, Verdict.OK)]
)
def test_a_clock_that_is_off_is_said_as_exactly_as_the_look_was_quick(
    skew: float, asked_seconds: float, verdict: Verdict
) -> None:
    assert doctor._clock(skew, asked_seconds=asked_seconds).verdict is verdict


@pytest.mark.parametrize(("days", "verdict"), [(-1, Verdict.FAIL), (3, Verdict.WARN), (8, Verdict.OK)])
def test_partitions_must_be_made_ahead(server: doctor_reads.Server, days: int, verdict: Verdict) -> None:
    upkeep = doctor_reads.Upkeep(
        partition_end=server.at + timedelta(days=days), differing=[], money=False, unwitnessed=[]
    )
    assert doctor._partitions(upkeep, server.at).verdict is verdict
    assert doctor._partitions(replace(upkeep, partition_end=None), server.at).verdict is Verdict.FAIL


def test_rows_in_the_default_partitions_are_a_warning_with_their_number_and_what_moves_them(
    server: doctor_reads.Server,
) -> None:
    upkeep = doctor_reads.Upkeep(
        partition_end=server.at + timedelta(days=28), differing=[], money=False, unwitnessed=[], by_default=1_234
    )
    point = doctor._partitions(upkeep, server.at)
    assert point.verdict is Verdict.WARN
    assert "1,234 rows lie in the default partitions" in point.detail
    assert "p_move_max" in point.next
