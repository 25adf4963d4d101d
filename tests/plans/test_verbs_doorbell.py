"""What ringing touches: one probe, however many dead rows a transaction elsewhere keeps alive (STORAGE, 0.6)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tests.support.databases import fresh_database
from tests.support.touched import touched

pytestmark = pytest.mark.req("G-08")

FLIPS = 3_000
NOW = datetime(2040, 1, 1, tzinfo=UTC)

Connection = psycopg.Connection[Any]


@pytest.fixture(scope="module")
def flipped(server_dsn: str, template: str) -> Iterator[Connection]:
    """A relay has lain down and got up thousands of times, beside a transaction that saw the first of them."""
    with fresh_database(server_dsn, template=template) as dsn, psycopg.connect(dsn) as holder:
        holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        holder.execute("SELECT count(*) FROM redrive.doorbell")
        with psycopg.connect(dsn, autocommit=True) as connection:
            worker = uuid4()
            with connection.pipeline():
                for flip in range(FLIPS):
                    now = NOW + timedelta(seconds=flip)
                    for destinations in (["shop"], []):
                        connection.execute("SELECT redrive.announce_idle_1(%s, %s, 5, %s)", [worker, destinations, now])
            yield connection


def _after(connection: Connection) -> datetime:
    return NOW + timedelta(seconds=FLIPS)


@pytest.mark.parametrize("asleep", [False, True])
def test_a_ring_reads_no_row_of_the_past(flipped: Connection, asleep: bool) -> None:
    now = _after(flipped)
    if asleep:
        flipped.execute("SELECT redrive.announce_idle_1(%s, '{shop}', 5, %s)", [uuid4(), now])
    for _ in range(2):  # the second time with the plan that the session has kept
        with touched(flipped) as seen:
            flipped.execute("SELECT redrive.enqueue_1('shop', '{}', p_now => %s)", [now])
    assert not seen.of("doorbell", seen.scanned)
    assert seen.entries.get("doorbell_pkey", 0) <= 10
    assert seen.of("doorbell", seen.pages) <= 20


def test_lying_down_reads_no_row_of_the_past(flipped: Connection) -> None:
    now = _after(flipped) + timedelta(seconds=60)
    with touched(flipped) as seen:
        flipped.execute("SELECT redrive.announce_idle_1(%s, '{shop}', 5, %s)", [uuid4(), now])
    assert not seen.of("doorbell", seen.scanned)
    assert seen.of("doorbell", seen.pages) <= 20
