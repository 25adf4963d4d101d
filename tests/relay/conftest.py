"""A store on a database of the test's own, and an app to fill."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from redrive.app import App
from redrive.store.runtime.postgres import PostgresStore
from redrive.transports.functions import FunctionTransport


@pytest.fixture
async def store(database: str) -> AsyncIterator[PostgresStore]:
    async with PostgresStore(database, connections=8) as opened:
        yield opened


@pytest.fixture
def app() -> Iterator[App]:
    made = App()
    yield made
    for destination in made.destinations.values():
        if isinstance(destination.transport, FunctionTransport):
            destination.transport.close()
