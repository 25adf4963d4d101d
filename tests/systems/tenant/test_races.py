"""Many connections add one event at the same instant, and relays dispatch side by side: one row, one process."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final
from uuid import UUID

import psycopg
import pytest

from redrive.kit.proof import journal
from redrive.kit.proof.environment import ProofEnvironment
from redrive.systems.tenant import Added, Event, EventTypes, OutboxWriter, Version
from tests.support.racing import Connection, column, together
from tests.support.scratch import scratch
from tests.systems.tenant import dispatch_app

CONNECTIONS: Final = 64
SECONDS: Final = 120.0  # for four processes on a busy machine
TYPES: Final = EventTypes()
TYPES.declare("DefinitionPublished", category="definition", by=Version())
WRITER: Final = OutboxWriter(event_types=TYPES)
PARTS: Final = {"entity": "d-7", "version": 3}
KEY: Final = TYPES.key("acme", "DefinitionPublished", PARTS)
_ROWS: Final = "SELECT id FROM redrive_tenant.outbox_messages WHERE tenant_id = 'acme' AND idempotency_key = %s"
_INSERT: Final = """
INSERT INTO redrive_tenant."OutboxMessages" ("TenantId", "EventType", "Payload", "IdempotencyKey")
VALUES ('acme', 'DefinitionPublished', %s, %s) RETURNING "Id"
"""

pytestmark = pytest.mark.req("T-01", "G-02")


def ids(dsn: str) -> list[UUID]:
    with psycopg.connect(dsn) as conn:
        return column(conn, _ROWS, KEY)


def published(number: int) -> Event:
    """Each of the racers has a payload of its own: the first one's is kept."""
    return Event("DefinitionPublished", {"by": number}, parts=PARTS)


def add(number: int) -> Callable[[Connection], Added]:
    def run(conn: Connection) -> Added:
        with conn.transaction():
            return WRITER.add(conn, "acme", published(number))

    return run


@pytest.mark.seed("003", "Parallel_Inserts_SingleRow")
def test_of_64_connections_that_add_one_event_at_once_one_writes_it_and_all_are_told_its_id(database: str) -> None:
    added = together(database, [add(number) for number in range(CONNECTIONS)])
    (id,) = ids(database)
    assert {(one.id, one.key) for one in added} == {(id, KEY)}
    assert sorted(one.already_existed for one in added) == [False, *[True] * (CONNECTIONS - 1)]


@pytest.mark.seed("003", "TryAddOutbox_Parallel_Inserts_SingleRow")
def test_of_64_connections_that_try_to_add_a_new_key_at_once_one_writes_it(database: str) -> None:
    made: list[int] = []

    def factory(number: int) -> Callable[[], Event]:
        def make() -> Event:
            made.append(number)
            return published(number)

        return make

    def try_add(number: int) -> Callable[[Connection], Added]:
        def run(conn: Connection) -> Added:
            with conn.transaction():
                return WRITER.try_add(conn, "acme", KEY, factory(number))

        return run

    added = together(database, [try_add(number) for number in range(CONNECTIONS)])
    (id,) = ids(database)
    assert {one.id for one in added} == {id}
    (first,) = [number for number, one in enumerate(added) if not one.already_existed]
    assert first in made
    calls = len(made)
    (again,) = together(database, [try_add(CONNECTIONS)])
    assert (again.id, again.already_existed, len(made)) == (id, True, calls)


@pytest.mark.seed("003", "Concurrency_IdempotentInsert_Race_Produces_SingleRow")
def test_of_64_plain_inserts_of_one_key_at_once_one_row_comes_and_each_gets_its_id(database: str) -> None:
    def insert(number: int) -> Callable[[Connection], Any]:
        def run(conn: Connection) -> Any:
            with conn.transaction():
                row = conn.execute(_INSERT, [json.dumps({"by": number}), KEY]).fetchone()
            assert row is not None
            return row[0]

        return run

    returned = together(database, [insert(number) for number in range(CONNECTIONS)])
    assert set(returned) == set(ids(database))
    assert len(ids(database)) == 1


def test_where_half_of_the_racers_roll_back_a_committed_one_has_written_the_row(database: str) -> None:
    """Each that waits behind one that rolls back takes its turn; none is told the id of an event that never was."""

    def racer(number: int) -> Callable[[Connection], Added | None]:
        def run(conn: Connection) -> Added | None:
            with conn.transaction() as transaction:
                added = WRITER.add(conn, "acme", published(number))
                if number % 2:
                    raise psycopg.Rollback(transaction)
                return added
            return None

        return run

    committed = [one for one in together(database, [racer(number) for number in range(CONNECTIONS)]) if one]
    (id,) = ids(database)
    assert {one.id for one in committed} == {id}
    assert [one.already_existed for one in committed].count(False) == 1


def test_of_64_tenants_that_add_one_key_at_once_each_has_its_own_event(database: str) -> None:
    def of_its_own(number: int) -> Callable[[Connection], Added]:
        def run(conn: Connection) -> Added:
            with conn.transaction():
                return WRITER.add(conn, f"tenant-{number}", published(number), key=KEY)

        return run

    added = together(database, [of_its_own(number) for number in range(CONNECTIONS)])
    assert len({one.id for one in added}) == CONNECTIONS
    assert not any(one.already_existed for one in added)


@pytest.fixture
def environment(database: str) -> Iterator[ProofEnvironment]:
    with (
        scratch("redrive-race-") as place,
        ProofEnvironment(
            place,
            database,
            limits={"concurrency": 5, "claim_max": 10, "lease_seconds": 60},  # a busy machine loses no claim
            variables={dispatch_app.VARIABLE: str(place / "log")},
        ) as opened,
    ):
        yield opened


@pytest.mark.full
@pytest.mark.timeout(300)
@pytest.mark.req("G-06")
@pytest.mark.seed("003", "Parallel_Dispatch_SingleProcessPerMessage")
def test_of_four_relay_processes_one_dispatches_each_event(environment: ProofEnvironment) -> None:
    count = 400
    relays = [environment.relay(f"relay-{number}", app=dispatch_app.SPEC) for number in range(dispatch_app.RELAYS)]
    with psycopg.connect(environment.dsn) as conn:
        for number in range(count):
            event = Event("TaskCompleted", {}, parts={"entity": f"t-{number}"})
            dispatch_app.outbox.writer.add(conn, f"tenant-{number % 10}", event)
    assert environment.wait(lambda: environment.counts()["closed"] == count, seconds=SECONDS), _said(environment)
    log = list(journal.read(environment.directory / "log"))
    assert Counter(Counter(line["id"] for line in log).values()) == {1: count}
    assert {line["pid"] for line in log} == {relay.pid for relay in relays}
    attempts = environment.rows("SELECT count(*), count(DISTINCT worker) FROM redrive.attempt WHERE verb = 'settle'")
    assert attempts == [(count, dispatch_app.RELAYS)]


def _said(environment: ProofEnvironment) -> str:
    return "\n".join(path.read_text()[-500:] for path in environment.processes.said())
