"""What settle, hand back, renew, reap and cancel touch: their own claims, never the other leases, never the archive."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.support import bulk
from tests.support.databases import fresh_database
from tests.support.touched import Touched, touched

pytestmark = pytest.mark.req("G-05")

LEASES = 5_000
BATCH = 500

Connection = psycopg.Connection[Any]
DELIVER = "SELECT count(*) FROM redrive.settle_delivered_1(%s, %s, %s, %s, %s, %s)"
SETTLE = (
    "SELECT count(*) FROM redrive.settle_1(%s, 'settle', %s, %s, %s::text[], %s::text[], %s::text[], %s::text[],"
    " %s::text[], %s::text[], %s::text[], %s, %s, %s, %s::float8[], %s::text[], %s, %s::text[], %s::text[], %s::text[],"
    " %s, %s, %s::text[], %s::text[], %s::text[], %s::text[])"
)
_NONE = None
RETRY = ("retry", _NONE, "retryable", "HTTP_503", "busy", _NONE, _NONE, 5, 1, 0, 30.0, "none", False, _NONE, _NONE)
PARK = ("park", _NONE, "terminal", "HTTP_400", "no", _NONE, _NONE, 5, 1, 0, 0.0, "none", False, _NONE, _NONE)
REST_OF_RETRY = (_NONE, False, False, _NONE, _NONE, _NONE, "rules")
REST_OF_PARK = ("dead", False, True, "stack", "{}", _NONE, "rules")


@pytest.fixture(scope="module", params=["analyzed", "never analyzed"])
def leased(request: pytest.FixtureRequest, server_dsn: str, template: str) -> Iterator[tuple[Connection, list[UUID]]]:
    """5,000 leases of one worker beside 20,000 closed messages; a batch of 500 of them is at stake."""
    with fresh_database(server_dsn, template=template) as dsn, psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("ALTER TABLE redrive.lease SET (autovacuum_enabled = false)")
        bulk.closed(connection, 20_000)
        ids = bulk.leased(connection, LEASES)
        if request.param == "analyzed":
            connection.execute("ANALYZE")
        yield connection, ids[:: LEASES // BATCH]


Leased = tuple[Connection, list[UUID]]


def _assert_only_its_own_leases(seen: Touched, *, messages: int = 0) -> None:
    assert not seen.of("lease", seen.scanned)
    assert not seen.of("pending", seen.scanned)
    assert not seen.of("attempt", seen.scanned)
    assert not seen.of("message", seen.scanned)
    assert seen.of("message", seen.entries) == messages
    # Two or three probes for each of its own; the bound leaves room for row versions that a test before left dead.
    assert seen.entries["lease_pkey"] <= LEASES // 2


@pytest.mark.req("G-14")
def test_settling_500_deliveries_touches_500_leases_of_5000(leased: Leased) -> None:
    connection, ids = leased
    with touched(connection) as seen:
        values = [bulk.WORKER, ids, [1] * BATCH, [5] * BATCH, ["ref"] * BATCH, ["rules"] * BATCH]
        assert connection.execute(DELIVER, values).fetchone() == (0,)
    _assert_only_its_own_leases(seen)
    assert seen.written["lease"] == BATCH
    assert seen.of("attempt", seen.written) == BATCH
    assert not seen.of("attempt", seen.scans)


@pytest.mark.req("G-14")
@pytest.mark.parametrize(("row", "goes_to"), [(RETRY + REST_OF_RETRY, "pending"), (PARK + REST_OF_PARK, "parked")])
def test_settling_500_failures_touches_500_leases_of_5000(leased: Leased, row: tuple[Any, ...], goes_to: str) -> None:
    connection, ids = leased
    with touched(connection) as seen:
        values = [bulk.WORKER, ids, [1] * BATCH, *([cell] * BATCH for cell in row)]
        assert connection.execute(SETTLE, values).fetchone() == (0,)
    _assert_only_its_own_leases(seen, messages=BATCH if goes_to == "parked" else 0)  # for the kind of what is parked
    assert seen.written["lease"] == seen.written[goes_to] == BATCH
    assert seen.of("attempt", seen.written) == BATCH


@pytest.mark.req("G-14")
def test_refusing_500_late_outcomes_probes_the_archive_once_each(leased: Leased) -> None:
    connection, ids = leased
    with touched(connection) as seen:
        values = [bulk.WORKER, ids, [7] * BATCH, [5] * BATCH, ["ref"] * BATCH, ["rules"] * BATCH]
        assert connection.execute(DELIVER, values).fetchone() == (BATCH,)
    _assert_only_its_own_leases(seen)
    assert seen.written == {"late_answer": BATCH}


@pytest.mark.req("G-09")
def test_handing_back_500_claims_touches_500_leases_of_5000(leased: Leased) -> None:
    connection, ids = leased
    with touched(connection) as seen:
        query = "SELECT count(*) FROM redrive.hand_back_1(%s, %s, %s)"
        assert connection.execute(query, [bulk.WORKER, ids, [1] * BATCH]).fetchone() == (BATCH,)
    _assert_only_its_own_leases(seen)
    assert seen.written["lease"] == seen.written["pending"] == BATCH


@pytest.mark.req("G-14")
def test_renewing_500_claims_touches_500_leases_of_5000(leased: Leased) -> None:
    connection, ids = leased
    with touched(connection) as seen:
        query = "SELECT count(*) FROM redrive.renew_1(%s, %s, %s, 60)"
        assert connection.execute(query, [bulk.WORKER, ids, [1] * BATCH]).fetchone() == (BATCH,)
    _assert_only_its_own_leases(seen)
    assert seen.written == {"lease": BATCH}


@pytest.mark.req("G-24")
def test_checking_500_claims_touches_500_leases_of_5000(leased: Leased) -> None:
    connection, ids = leased
    with touched(connection) as seen:
        query = "SELECT count(*) FROM redrive.check_claims_1(%s, %s, %s)"
        assert connection.execute(query, [bulk.WORKER, ids, [1] * BATCH]).fetchone() == (BATCH,)
    _assert_only_its_own_leases(seen)
    assert seen.written == {}


@pytest.mark.req("G-14")
def test_reap_looks_at_the_leases_and_at_nothing_else(leased: Leased) -> None:
    connection, _ = leased
    with touched(connection) as seen:
        assert connection.execute("SELECT redrive.reap_1(500)").fetchone() == (0,)
    assert seen.scanned == {"lease": LEASES}
    assert not seen.entries
    assert not seen.wrote


@pytest.mark.req("G-24")
def test_cancel_finds_its_message_without_scanning_anything(leased: Leased) -> None:
    connection, ids = leased
    with touched(connection) as seen:
        assert connection.execute("SELECT redrive.cancel_1(%s)", [ids[0]]).fetchone() == ("in_flight",)
    assert seen.written == {"lease": 1}
    assert not {name for name in seen.scanned if not name.startswith("partition_range")}
