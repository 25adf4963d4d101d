"""One database for the tests of a module, emptied after each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from redrive.store.runtime.postgres import PostgresStore
from tests.lifecycle.conftest import EMPTY_ALL
from tests.support import databases


@pytest.fixture(scope="module")
def desk_dsn(server_dsn: str, template: str) -> Iterator[str]:
    with databases.fresh_database(server_dsn, template=template) as dsn:
        yield dsn


@pytest.fixture
async def store(desk_dsn: str) -> AsyncIterator[PostgresStore]:
    async with PostgresStore(desk_dsn, connections=4) as opened:
        yield opened
        async with opened.connection() as conn:
            await conn.execute(EMPTY_ALL.encode())
