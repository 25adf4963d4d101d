"""A producer of either kind, synchronous and not: the same test runs over both. The other doors: tests/doors."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from redrive.store.runtime.postgres import PostgresStore
from tests.support.doors import DOORS, Producer


@pytest.fixture(params=["psycopg", "psycopg async"])
async def producer(request: pytest.FixtureRequest, database: str) -> AsyncIterator[Producer]:
    async with DOORS[request.param](database) as producer:
        yield producer


@pytest.fixture
async def store(database: str) -> AsyncIterator[PostgresStore]:
    async with PostgresStore(database, connections=2) as store:
        yield store
