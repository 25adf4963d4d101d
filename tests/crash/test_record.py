"""The effect has happened and `record` fails, in every way it can: it is never sent again, and a person can mend it."""

from __future__ import annotations

import asyncio
import threading

import psycopg
import pytest

from redrive.prove.environment import Environment
from redrive.prove.proxy import Proxy
from tests.crash.lives import (
    AGREED,
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
def test_a_failed_record_parks_its_message_with_the_answer_and_repair_never_sends(stage: Environment) -> None:
    stage.observe()
    with psycopg.connect(stage.dsn, autocommit=True) as conn:
        conn.execute("CREATE TABLE redrive_prove.nothing (id integer PRIMARY KEY)")
        conn.execute(
            "CREATE TABLE redrive_prove.deferred"
            " (id integer REFERENCES redrive_prove.nothing DEFERRABLE INITIALLY DEFERRED)"
        )
    for how in UNMENDABLE:
        enqueue(stage, how, "book", record=how)
    enqueue(stage, "neighbour", "book", count=5, record="well")
    relay = stage.relay(app=APP, limits=LIMITS, environment=gate(stage))
    wait_count(stage, "parked", len(UNMENDABLE))
    wait_quiet(stage)

    ids = key_ids(stage)
    parked = rows(stage, "SELECT id::text, reason, error_class, kept_answer->>'answer' FROM redrive.parked")
    assert {row[0]: row[1:] for row in parked} == {
        ids[f"{how}/0"]: ("unrecorded", code, "delivered") for how, code in UNMENDABLE.items()
    }
    assert stage.value("SELECT count(*) FROM redrive_prove.recorded") == 5  # the neighbours', and nothing half-done

    open_gate(stage, "mended")
    for row in parked:
        assert stage.value("SELECT redrive.repair_1(%s, 'operator', 'mended')", row[0]) == "done"
    wait_count(stage, "closed", len(UNMENDABLE) + 5)
    assert stop(relay) == 0, said(stage)
    assert set(sends(stage).values()) == {1}
    assert stage.value("SELECT count(*) FROM redrive_prove.recorded") == len(UNMENDABLE) + 5
    assert rows(stage, "SELECT DISTINCT closed FROM redrive.attempt WHERE closed IS NOT NULL") == [("delivered",)]


@pytest.mark.req("G-14")
@pytest.mark.req("G-27")
def test_a_record_is_cut_off_before_its_claim_can_be_lost(stage: Environment) -> None:
    stage.observe()
    enqueue(stage, "endless", "book", record="timeout")
    relay = stage.relay(app=APP, limits={"record_timeout_seconds": 60.0}, environment=gate(stage))
    wait_count(stage, "parked", 1, seconds=15)

    assert stop(relay) == 0
    assert rows(stage, "SELECT reason, error_class FROM redrive.parked") == [("unrecorded", "RECORD_TIMEOUT")]
    assert list(sends(stage).values()) == [1]


@pytest.mark.req("G-27")
def test_a_record_that_deadlocks_is_run_again_and_nothing_is_sent_twice(stage: Environment) -> None:
    stage.observe()
    enqueue(stage, "deadlock", "book", record="deadlock")
    with psycopg.connect(stage.dsn) as rival:
        rival.execute("SET deadlock_timeout = '60s'")  # so that the other one is chosen
        rival.execute("SELECT pg_advisory_xact_lock(2)")
        relay = stage.relay(app=APP, limits=PATIENT, environment=gate(stage))
        waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        assert stage.wait(lambda: stage.value(waiting) == 1, seconds=20)
        rival.execute("SELECT pg_advisory_xact_lock(1)")  # returns when the record was rolled back
        open_gate(stage, "mended")
        rival.commit()
    wait_quiet(stage)

    assert stop(relay) == 0
    assert list(sends(stage).values()) == [1]
    assert rows(stage, "SELECT attempt, verb, closed FROM redrive.attempt") == [(1, "settle", "delivered")]
    assert stage.value("SELECT count(*) FROM redrive_prove.recorded") == 1


@pytest.mark.req("G-27")
@pytest.mark.req("G-14")
def test_a_commit_whose_reply_is_lost_is_recognised_and_not_recorded_twice(database: str) -> None:
    with scratch("redrive-stage-") as place:
        proxy = Proxy(place, database)
        proxy.lose_reply_to(b"COMMIT")
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        try:
            asyncio.run_coroutine_threadsafe(proxy.__aenter__(), loop).result()
            with Environment(place, database, agreed=AGREED, wire=proxy.dsn) as stage:
                stage.prepare()
                stage.observe()
                enqueue(stage, "lost", "book", record="well")
                relay = stage.relay(app=APP, environment=gate(stage))
                wait_count(stage, "closed", 1)
                assert stop(relay) == 0

                assert proxy.cuts == 1
                assert list(sends(stage).values()) == [1]
                assert rows(stage, "SELECT attempt, verb, closed FROM redrive.attempt") == [(1, "settle", "delivered")]
                assert stage.value("SELECT count(*) FROM redrive_prove.recorded") == 1
                assert stage.value("SELECT count(*) FROM redrive.late_answer") == 0
        finally:
            asyncio.run_coroutine_threadsafe(proxy.__aexit__(None, None, None), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()


@pytest.mark.req("G-18")
@pytest.mark.req("G-27")
def test_a_record_that_takes_its_process_down_is_parked_after_as_many_crashes_as_any_other(stage: Environment) -> None:
    stage.observe()
    enqueue(stage, "exit", "book", record="raise")
    first = stage.relay(app=APP, limits=LIMITS, environment=gate(stage))
    wait_count(stage, "parked", 1)
    assert stop(first) == 0, said(stage)
    (id,) = key_ids(stage).values()
    open_gate(stage, "exits")
    assert stage.value("SELECT redrive.repair_1(%s, 'operator', 'try it')", id) == "done"
    assert stage.wait(lambda: _restarted(stage), seconds=60)

    assert rows(stage, "SELECT reason, error_class, crashes, kept_answer->>'answer' FROM redrive.parked") == [
        ("unrecorded", "CRASHED", 3, "delivered")
    ]
    assert list(sends(stage).values()) == [1]


def _restarted(stage: Environment) -> bool:
    """As a supervisor would; true when the message is parked again."""
    relay = stage.relay(app=APP, limits=LIMITS, environment=gate(stage))
    assert stage.wait(lambda: relay.code is not None or stage.is_quiet(), seconds=60)
    return relay.code is None and stop(relay) == 0
