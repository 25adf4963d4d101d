"""Every door into the outbox, straight to the server and through a pooler in transaction mode."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.support.doors import DOORS, Door, Producer
from tests.support.poolers import pgbouncer


@pytest.fixture(params=["direct", pytest.param("pooled", marks=pytest.mark.full)])
def dsn(request: pytest.FixtureRequest, database: str) -> Iterator[str]:
    if request.param == "direct":
        yield database
        return
    with pgbouncer(database, "transaction") as through:
        yield through


@pytest.fixture(params=list(DOORS))
def door(request: pytest.FixtureRequest) -> Door:
    return DOORS[request.param]


@pytest.fixture
async def producer(door: Door, dsn: str) -> AsyncIterator[Producer]:
    async with door(dsn) as producer:
        yield producer
