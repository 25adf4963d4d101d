"""The effect has happened and `record` fails, in every way it can: it is never sent again, and a person can mend it."""

from __future__ import annotations

import asyncio
import threading

import psycopg
import pytest

from redrive.kit.proof.proxy import Proxy
from redrive.prove.environment import Environment
from tests.crash.lives import (
    CONFIG,
    enqueue,
    gate,
    key_ids,
    open_gate,
    rows,
    said,
    sends,
    stop,
    wait_count,
    wait_quiet,
)
from tests.support.scratch import scratch

APP = "tests.crash.apps:recording"
UNMENDABLE = {
    "raise": "RECORD_FAILED",
    "SystemExit": "RECORD_FAILED",
    "CancelledError": "RECORD_FAILED",
    "aborted": "RECORD_FAILED",
    "deferred": "RECORD_FAILED",
    "transient": "RECORD_FAILED",
    "timeout": "RECORD_TIMEOUT",
}
# A claim cannot be renewed while its record runs, so a record gets half a lease at most.
LIMITS = {"lease_seconds": 4.0, "record_timeout_seconds": 0.5}
PATIENT = {"lease_seconds": 6.0, "record_timeout_seconds": 3.0}


@pytest.mark.req("G-27")
def test_a_failed_record_parks_its_message_with_the_answer_and_repair_never_sends(environment: Environment) -> None:
    environment.observe()
    with psycopg.connect(environment.dsn, autocommit=True) as conn:
        conn.execute("CREATE TABLE redrive_prove.nothing (id integer PRIMARY KEY)")
        conn.execute(
            "CREATE TABLE redrive_prove.deferred"
            " (id integer REFERENCES redrive_prove.nothing DEFERRABLE INITIALLY DEFERRED)"
        )
    for how in UNMENDABLE:
        enqueue(environment, how, "book", record=how)
    enqueue(environment, "neighbour", "book", count=5, record="well")
    relay = environment.relay(app=APP, limits=LIMITS, environment=gate(environment))
    wait_count(environment, "parked", len(UNMENDABLE))
    wait_quiet(environment)

    ids = key_ids(environment)
    parked = rows(environment, "SELECT id::text, reason, error_class, kept_answer->>'answer' FROM redrive.parked")
    assert {row[0]: row[1:] for row in parked} == {
        ids[f"{how}/0"]: ("unrecorded", code, "delivered") for how, code in UNMENDABLE.items()
    }
    assert (
        environment.value("SELECT count(*) FROM redrive_prove.recorded") == 5
    )  # the neighbours', and nothing half-done

    open_gate(environment, "mended")
    for row in parked:
        assert environment.value("SELECT redrive.repair_1(%s, 'operator', 'mended')", row[0]) == "done"
    wait_count(environment, "closed", len(UNMENDABLE) + 5)
    assert stop(relay) == 0, said(environment)
    assert set(sends(environment).values()) == {1}
    assert environment.value("SELECT count(*) FROM redrive_prove.recorded") == len(UNMENDABLE) + 5
    assert rows(environment, "SELECT DISTINCT closed FROM redrive.attempt WHERE closed IS NOT NULL") == [("delivered",)]


@pytest.mark.req("G-14")
@pytest.mark.req("G-27")
def test_a_record_is_cut_off_before_its_claim_can_be_lost(environment: Environment) -> None:
    environment.observe()
    enqueue(environment, "endless", "book", record="timeout")
    relay = environment.relay(app=APP, limits={"record_timeout_seconds": 60.0}, environment=gate(environment))
    wait_count(environment, "parked", 1, seconds=15)

    assert stop(relay) == 0
    assert rows(environment, "SELECT reason, error_class FROM redrive.parked") == [("unrecorded", "RECORD_TIMEOUT")]
    assert list(sends(environment).values()) == [1]


@pytest.mark.req("G-27")
def test_a_record_that_deadlocks_is_run_again_and_nothing_is_sent_twice(environment: Environment) -> None:
    environment.observe()
    enqueue(environment, "deadlock", "book", record="deadlock")
    with psycopg.connect(environment.dsn) as rival:
        rival.execute("SET deadlock_timeout = '60s'")  # so that the other one is chosen
        rival.execute("SELECT pg_advisory_xact_lock(2)")
        relay = environment.relay(app=APP, limits=PATIENT, environment=gate(environment))
        waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        assert environment.wait(lambda: environment.value(waiting) == 1, seconds=20)
        rival.execute("SELECT pg_advisory_xact_lock(1)")  # returns when the record was rolled back
        open_gate(environment, "mended")
        rival.commit()
    wait_quiet(environment)

    assert stop(relay) == 0
    assert list(sends(environment).values()) == [1]
    assert rows(environment, "SELECT attempt, verb, closed FROM redrive.attempt") == [(1, "settle", "delivered")]
    assert environment.value("SELECT count(*) FROM redrive_prove.recorded") == 1


@pytest.mark.req("G-27")
@pytest.mark.req("G-14")
def test_a_commit_whose_reply_is_lost_is_recognised_and_not_recorded_twice(database: str) -> None:
    with scratch("redrive-prove-") as place:
        proxy = Proxy(place, database)
        proxy.lose_reply_to(b"COMMIT")
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        try:
            asyncio.run_coroutine_threadsafe(proxy.__aenter__(), loop).result()
            with Environment(place, database, config=CONFIG, wire=proxy.dsn) as environment:
                environment.prepare()
                environment.observe()
                enqueue(environment, "lost", "book", record="well")
                relay = environment.relay(app=APP, environment=gate(environment))
                wait_count(environment, "closed", 1)
                assert stop(relay) == 0

                assert proxy.cuts == 1
                assert list(sends(environment).values()) == [1]
                assert rows(environment, "SELECT attempt, verb, closed FROM redrive.attempt") == [
                    (1, "settle", "delivered")
                ]
                assert environment.value("SELECT count(*) FROM redrive_prove.recorded") == 1
                assert environment.value("SELECT count(*) FROM redrive.late_answer") == 0
        finally:
            asyncio.run_coroutine_threadsafe(proxy.__aexit__(None, None, None), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()


@pytest.mark.req("G-18")
@pytest.mark.req("G-27")
def test_a_record_that_takes_its_process_down_is_parked_after_as_many_crashes_as_any_other(
    environment: Environment,
) -> None:
    environment.observe()
    enqueue(environment, "exit", "book", record="raise")
    first = environment.relay(app=APP, limits=LIMITS, environment=gate(environment))
    wait_count(environment, "parked", 1)
    assert stop(first) == 0, said(environment)
    (id,) = key_ids(environment).values()
    open_gate(environment, "exits")
    assert environment.value("SELECT redrive.repair_1(%s, 'operator', 'try it')", id) == "done"
    assert environment.wait(lambda: _restarted(environment), seconds=60)

    assert rows(environment, "SELECT reason, error_class, crashes, kept_answer->>'answer' FROM redrive.parked") == [
        ("unrecorded", "CRASHED", 3, "delivered")
    ]
    assert list(sends(environment).values()) == [1]


def _restarted(environment: Environment) -> bool:
    """As a supervisor would; true when the message is parked again."""
    relay = environment.relay(app=APP, limits=LIMITS, environment=gate(environment))
    assert environment.wait(lambda: relay.code is not None or environment.is_quiet(), seconds=60)
    return relay.code is None and stop(relay) == 0
