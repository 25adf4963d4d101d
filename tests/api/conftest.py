"""The application on a database of its own for the module, and people of every role who ask it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import httpx2
import psycopg
import pytest

from redrive.operate.web import tokens
from redrive.operate.web.app import create_app
from redrive.operate.web.auth_config import AuthConfig
from redrive.operate.web.authentication import Authenticator
from redrive.operate.web.middleware import Guard
from redrive.operate.web.principal import Role
from redrive.operate.web.tokens import NewToken
from redrive.store.runtime.postgres import PostgresStore
from redrive.who import Who
from tests.support.databases import fresh_database

ORIGIN = "http://console.test"
SECURE = "https://console.test"


@cache
def routes() -> Guard:
    """Made once: it takes longer than most tests, and knows no database."""
    return create_app("host=nowhere", systems={})


@dataclass
class House:
    """A database with its console. peer: the address from which everybody seems to come."""

    dsn: str
    secrets: dict[tuple[Role, str], str] = field(default_factory=dict)

    def app(self, **auth: Any) -> Guard:
        authenticator = Authenticator(
            PostgresStore(self.dsn, name="test"), AuthConfig(**{"origin": ORIGIN, **auth}), self.dsn
        )
        return Guard(routes().app, authenticator, error_page=routes().error_page)

    async def token(self, role: Role, tenant: str = "*", **more: Any) -> str:
        """The secret of a token that is good; made once for each role and tenant."""
        if more:
            return await self._made(role, tenant, **more)
        if (role, tenant) not in self.secrets:
            self.secrets[role, tenant] = await self._made(role, tenant)
        return self.secrets[role, tenant]

    async def _made(self, role: Role, tenant: str, *, name: str | None = None, days: float = 1.0) -> str:
        async with PostgresStore(self.dsn, connections=1) as store:
            wanted = NewToken(name=name or f"{role} of {tenant}", role=role, tenant=tenant, days=days)
            return (await tokens.create(store, wanted, Who(actor="test", reason="test")))[1]

    def execute(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            cursor = connection.execute(statement.encode(), values)
            return cursor.fetchall() if cursor.description else []

    def denials(self) -> list[tuple[str, str, str]]:
        """Who, what, and the code."""
        rows = self.execute(
            "SELECT actor, subject, after->>'code' FROM redrive.operator_action WHERE act = 'access_denied' ORDER BY id"
        )
        return [(actor, subject, code) for actor, subject, code in rows]


@asynccontextmanager
async def asking(app: Guard, *, origin: str = ORIGIN, peer: str = "192.0.2.7", **options: Any) -> AsyncIterator[Any]:
    """A client that speaks to the application without a network."""
    transport = httpx2.ASGITransport(app=app, client=(peer, 4711))
    try:
        async with httpx2.AsyncClient(transport=transport, base_url=origin, **options) as client:
            yield client
    finally:
        await app.authenticator.store.__aexit__()


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


@pytest.fixture(scope="module")
def house(server_dsn: str, template: str) -> Iterator[House]:
    """One database for the tests of a module."""
    with fresh_database(server_dsn, template=template) as dsn:
        yield House(dsn)
