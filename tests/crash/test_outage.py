"""PostgreSQL goes away while work is in flight, for longer than a lease: nothing of it becomes a crash."""

from __future__ import annotations

import os
import signal

import psycopg
import pytest

from redrive.prove.environment import Environment
from redrive.store.migrations import migrate
from tests.conftest import CrashServer
from tests.crash.lives import (
    CONFIG,
    enqueue,
    gate,
    open_gate,
    pass_time,
    rows,
    sends,
    stop,
    wait_at_gate,
    wait_count,
    wait_quiet,
)
from tests.support.scratch import scratch

APP = "tests.crash.apps:gated"
MESSAGES = 20
ALL_AT_ONCE = {"concurrency": 2 * MESSAGES}  # what waits in hand through an outage is handed back, rightly


@pytest.mark.req("G-14")
def test_an_outage_longer_than_a_lease_turns_no_live_work_into_crashes(crash_server: CrashServer) -> None:
    server = crash_server()
    migrate.upgrade(server.dsn)
    with scratch("redrive-prove-") as place, Environment(place, server.dsn, config=CONFIG) as environment:
        environment.prepare()
        environment.observe()
        enqueue(environment, "early", "gated", count=MESSAGES, gate="early")
        enqueue(environment, "late", "gated", count=MESSAGES, gate="late")
        relays = [
            environment.relay(f"relay-{n}", app=APP, environment=gate(environment), limits=ALL_AT_ONCE)
            for n in range(2)
        ]
        wait_at_gate(environment, "early", MESSAGES)
        wait_at_gate(environment, "late", MESSAGES)

        os.kill(server.pid, signal.SIGQUIT)
        assert environment.wait(lambda: not server.running, seconds=20)
        open_gate(environment, "early")  # these are sent and answered while nobody can write it down
        assert environment.wait(lambda: len(sends(environment)) == MESSAGES, seconds=20)
        pass_time(environment, 2 * CONFIG.lease_seconds)
        for relay in relays:
            relay.signal(signal.SIGSTOP)  # so that a reaper comes before anybody can renew
        crash_server(server.data_dir)
        assert environment.value("SELECT redrive.reap_1(1000)") == 0
        for relay in relays:
            relay.signal(signal.SIGCONT)
        open_gate(environment, "late")
        wait_quiet(environment)

        assert [stop(relay) for relay in relays] == [0, 0]
        assert rows(
            environment, "SELECT verb, closed, attempt, spent, count(*) FROM redrive.attempt GROUP BY 1, 2, 3, 4"
        ) == [("settle", "delivered", 1, 1, 2 * MESSAGES)]
        assert set(sends(environment).values()) == {1}
        assert environment.verdict().sentences == []


@pytest.mark.req("G-14")
def test_a_server_that_accepts_no_writes_is_waited_for_and_no_outcome_is_lost(crash_server: CrashServer) -> None:
    """As in a maintenance, or before a standby is promoted: it answers, and refuses every verb (25006)."""
    server = crash_server()
    migrate.upgrade(server.dsn)
    with scratch("redrive-prove-") as place, Environment(place, server.dsn, config=CONFIG) as environment:
        environment.prepare()
        environment.observe()
        enqueue(environment, "early", "gated", count=MESSAGES, gate="early")
        enqueue(environment, "late", "gated", count=MESSAGES, gate="late")
        relays = [
            environment.relay(f"relay-{n}", app=APP, environment=gate(environment), limits=ALL_AT_ONCE)
            for n in range(2)
        ]
        wait_at_gate(environment, "early", MESSAGES)
        wait_at_gate(environment, "late", MESSAGES)

        set_read_only(server.dsn, "on")
        open_gate(environment, "early")  # these are sent and answered while nothing can be written
        assert environment.wait(lambda: len(sends(environment)) == MESSAGES, seconds=20)
        pass_time(environment, 2 * CONFIG.lease_seconds)
        assert [relay.code for relay in relays] == [None, None]
        set_read_only(server.dsn, "off")
        open_gate(environment, "late")
        wait_quiet(environment)

        assert [stop(relay) for relay in relays] == [0, 0]
        assert rows(
            environment, "SELECT verb, closed, attempt, spent, count(*) FROM redrive.attempt GROUP BY 1, 2, 3, 4"
        ) == [("settle", "delivered", 1, 1, 2 * MESSAGES)]
        assert set(sends(environment).values()) == {1}
        assert environment.verdict().sentences == []


@pytest.mark.req("G-14")
def test_a_relay_that_begins_after_writes_were_refused_takes_no_claim_of_one_that_lived_through_it(
    crash_server: CrashServer,
) -> None:
    """It has met no refusal itself, and the claims of the other could not be renewed."""
    server = crash_server()
    migrate.upgrade(server.dsn)
    with scratch("redrive-prove-") as place, Environment(place, server.dsn, config=CONFIG) as environment:
        environment.prepare()
        environment.observe()
        enqueue(environment, "early", "gated", count=MESSAGES, gate="early")
        older = environment.relay("older", app=APP, environment=gate(environment), limits={"reap_every_seconds": 600.0})
        wait_count(environment, "leased", MESSAGES)
        reaped = "SELECT count(*) FROM redrive.duty WHERE name = 'reap' AND finished_at IS NOT NULL"
        assert environment.wait(
            lambda: environment.value(reaped), seconds=20
        )  # or it would keep the duty for twice its interval

        set_read_only(server.dsn, "on")
        open_gate(environment, "early")
        assert environment.wait(lambda: len(sends(environment)) == MESSAGES, seconds=20)
        pass_time(environment, 2 * CONFIG.lease_seconds)
        older.signal(signal.SIGSTOP)  # so that a reaper comes before it can renew
        set_read_only(server.dsn, "off")
        rows(environment, "UPDATE redrive.duty SET finished_at = NULL WHERE name = 'reap' RETURNING 1")
        newer = environment.relay("newer", app=APP, environment=gate(environment))
        assert environment.wait(lambda: environment.value(reaped), seconds=20)
        older.signal(signal.SIGCONT)
        wait_quiet(environment)

        assert [stop(older), stop(newer)] == [0, 0]
        assert rows(environment, "SELECT verb, closed, attempt, count(*) FROM redrive.attempt GROUP BY 1, 2, 3") == [
            ("settle", "delivered", 1, MESSAGES)
        ]
        assert set(sends(environment).values()) == {1}


def set_read_only(dsn: str, value: str) -> None:
    options = "-c default_transaction_read_only=off"
    with psycopg.connect(dsn, autocommit=True, options=options) as conn:
        conn.execute(f"ALTER SYSTEM SET default_transaction_read_only = {value}".encode())
        conn.execute("SELECT pg_reload_conf()")


@pytest.mark.req("G-14")
def test_a_server_that_recovers_without_a_new_start_begins_every_lease_anew(crash_server: CrashServer) -> None:
    """One of its processes is killed: the postmaster lives on, all the others are gone until recovery is over."""
    server = crash_server()
    migrate.upgrade(server.dsn)
    with psycopg.connect(server.dsn, autocommit=True) as conn:
        before = conn.execute("SELECT pg_postmaster_start_time(), clock_timestamp()").fetchone()
        os.kill(conn.info.backend_pid, signal.SIGKILL)
    assert before is not None
    with scratch("redrive-prove-") as place, Environment(place, server.dsn) as environment:
        anew = "SELECT redrive.server_ready_at() > %s"
        assert environment.wait(lambda: environment.value(anew, before[1]), seconds=20), "the leases count from before"
        assert environment.value("SELECT pg_postmaster_start_time()") == before[0]
