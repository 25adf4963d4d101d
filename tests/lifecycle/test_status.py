"""Status says of every state what an application may know, with a producer's rights (G-24)."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

import redrive
from redrive.errors import InvalidValue, NotFound
from redrive.message import Status
from redrive.produce import message_status
from redrive.store.runtime.postgres import PostgresStore
from tests.support import messages as m
from tests.support.situations import KEY, reach

pytestmark = pytest.mark.req("G-24")


def as_producer(dsn: str, **named: Any) -> Status:
    with psycopg.connect(dsn) as connection:
        connection.execute("SET ROLE redrive_producer")
        return redrive.status(connection, **named)


@pytest.mark.parametrize("state", ["pending", "leased", "parked·dead", "parked·held", "parked·unrecorded", "delivered"])
async def test_every_state_is_told_to_a_producer(store: PostgresStore, database: str, state: str) -> None:
    situation = await reach(store, state)
    found = as_producer(database, id=situation.id)
    assert as_producer(database, key=KEY) == found
    said = f"{found.state}·{found.park_reason}" if found.park_reason else found.state
    assert said == state
    assert found.attempt == (2 if state == "pending" else 3)
    assert found.is_finished == (state not in {"pending", "leased"})
    assert found.in_doubt == (state == "parked·held")
    assert (found.due_at is None) == (state != "pending")
    assert (found.closed_at, found.reference) == ((m.at(200), "ref-1") if state == "delivered" else (None, None))


async def test_a_cancel_that_travels_with_the_message_is_told(store: PostgresStore, database: str) -> None:
    await reach(store, "leased")
    with psycopg.connect(database) as connection:
        connection.execute("SET ROLE redrive_producer")
        assert redrive.cancel(connection, key=KEY) is redrive.CancelAnswer.IN_FLIGHT
    assert as_producer(database, key=KEY).cancel_requested


async def test_a_key_whose_history_was_retired_is_just_closed(store: PostgresStore, database: str) -> None:
    situation = await reach(store, "delivered")
    with psycopg.connect(database) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute("DELETE FROM redrive.message")
        connection.execute("DELETE FROM redrive.attempt")
    assert as_producer(database, key=KEY) == Status(situation.id, "closed")
    assert as_producer(database, key=KEY).is_finished
    with pytest.raises(NotFound, match="retired"):
        as_producer(database, id=situation.id)


def test_pauses_grow_to_a_second_and_end_with_a_last_look() -> None:
    slept: list[float] = []
    slept.extend(round(pause, 6) for pause in message_status.pauses(5.0, lambda: sum(slept)))
    assert slept == [0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0, 1.0, 0.74, 0.0]


@pytest.mark.parametrize("seconds", [-0.001, 86_400.001, float("nan")])
def test_a_wait_without_bound_is_refused(seconds: float) -> None:
    with pytest.raises(InvalidValue, match="0 to 86400"):
        list(message_status.pauses(seconds, lambda: 0.0))
