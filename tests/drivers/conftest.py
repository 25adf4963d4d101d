"""Every door into the outbox, straight to the server and through a pooler in transaction mode."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from redrive.operate import embedded
from tests.support.databases import fresh_database, migrated_template
from tests.support.doors import DOORS, Door, Producer
from tests.support.poolers import pgbouncer
from tests.support.scratch import scratch


@dataclass(frozen=True)
class Pooled:
    """A server that a pooler can reach whoever it runs as, and the pooler in front of it."""

    server: str
    pooler: str
    template: str


@pytest.fixture(scope="session")
def pooled() -> Iterator[Pooled]:
    with ExitStack() as stack:
        place = stack.enter_context(scratch("redrive-pooled-"))
        server = embedded.start(place / "data", port=0, settings={"fsync": "off", "shared_buffers": "16MB"})
        stack.callback(server.stop)
        through = stack.enter_context(pgbouncer(server.dsn, "transaction"))
        yield Pooled(server.dsn, through, migrated_template(server.dsn))


PLACES: Final = ("direct", pytest.param("pooled", marks=[pytest.mark.full, pytest.mark.own_server]))


def database_at(request: pytest.FixtureRequest) -> Iterator[str]:
    """On the server of the run or behind the pooler, whichever the parameter says."""
    if request.param == "direct":
        server, template = request.getfixturevalue("server_dsn"), request.getfixturevalue("template")
    else:
        behind: Pooled = request.getfixturevalue("pooled")
        server, template = behind.server, behind.template
    with fresh_database(server, template=template) as dsn:
        yield dsn


@pytest.fixture(params=PLACES)
def database(request: pytest.FixtureRequest) -> Iterator[str]:
    """A database of the test's own."""
    yield from database_at(request)


@pytest.fixture
def dsn(request: pytest.FixtureRequest, database: str) -> str:
    """How a door gets to it."""
    if request.node.callspec.params["database"] == "direct":
        return database
    behind: Pooled = request.getfixturevalue("pooled")
    return make_conninfo(behind.pooler, dbname=conninfo_to_dict(database)["dbname"])


@pytest.fixture(params=list(DOORS))
def door(request: pytest.FixtureRequest) -> Door:
    return DOORS[request.param]


@pytest.fixture
async def producer(door: Door, dsn: str) -> AsyncIterator[Producer]:
    async with door(dsn) as producer:
        yield producer
