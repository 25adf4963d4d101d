"""A store on a database of the test's own; and one that many small tests share, emptied after each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from redrive.store.runtime.postgres import PostgresStore
from tests.support import databases

# Behind the triggers that keep the archive as it is: only a test may do this, to its own database.
EMPTY_ALL = """
    SET session_replication_role = replica;
    DELETE FROM redrive.message; DELETE FROM redrive.body; DELETE FROM redrive.attempt;
    DELETE FROM redrive.idempotency; DELETE FROM redrive.late_answer; DELETE FROM redrive.operator_action;
    DELETE FROM redrive.pending; DELETE FROM redrive.lease; DELETE FROM redrive.parked; DELETE FROM redrive.destination;
    DELETE FROM redrive.allowance; DELETE FROM redrive.evidence; DELETE FROM redrive.clock_jump;
    DELETE FROM redrive.failure_group; DELETE FROM redrive.failure_tally; DELETE FROM redrive.replay_item;
    DELETE FROM redrive.replay; DELETE FROM redrive.request; DELETE FROM redrive.proposal;
    DELETE FROM redrive.stream; DELETE FROM redrive.lane; DELETE FROM redrive.lane_wake;
    RESET session_replication_role;
"""


@pytest.fixture
async def store(database: str) -> AsyncIterator[PostgresStore]:
    async with PostgresStore(database, connections=3) as opened:
        yield opened


@pytest.fixture(scope="module")
def shared_database(server_dsn: str, template: str) -> Iterator[str]:
    with databases.fresh_database(server_dsn, template=template) as dsn:
        yield dsn


@pytest.fixture
async def shared_store(shared_database: str) -> AsyncIterator[PostgresStore]:
    """For hundreds of cells of a table: a database each would cost more than all that they do."""
    async with PostgresStore(shared_database, connections=3) as opened:
        yield opened
        async with opened.connection() as conn:
            await conn.execute(EMPTY_ALL.encode())
