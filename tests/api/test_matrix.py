"""Role × operation × tenant: every operation that OpenAPI names, asked by everybody, for their own and for others'."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio

from redrive.operate.web.app import API_PREFIX, description, routes_of
from redrive.operate.web.dependencies import Requirement
from redrive.operate.web.principal import LEAST_ROLE, Role
from tests.api import world as w
from tests.api.conftest import House, asking, bearer, routes
from tests.api.world import ROWS, Row, Things, World

pytestmark = [pytest.mark.req("G-21"), pytest.mark.asyncio(loop_scope="module")]
ROLES = tuple(Role)
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def operations() -> Iterator[tuple[str, str, Requirement]]:
    """Method, path below the prefix, and what it needs; as the application says itself."""
    app: Any = routes().app
    described = description(app)["paths"]
    needs = {(method, path): needed for path, methods, needed in routes_of(app) for method in methods}
    for path, methods in described.items():
        for method in methods:
            (requirement,) = needs[method.upper(), path]
            yield method.upper(), path.removeprefix(API_PREFIX), requirement


OPERATIONS = list(operations())
IDS = [f"{method} {path}" for method, path, _ in OPERATIONS]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(house: House) -> World:
    return await w.made(house.dsn)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(house: House) -> AsyncIterator[Any]:
    async with asking(house.app()) as client:
        yield client


async def ask(client: Any, secret: str, method: str, path: str, row: Row, world: World, things: Things) -> Any:
    headers = bearer(secret)
    if method == "POST":
        headers["Idempotency-Key"] = str(uuid4())
    address = API_PREFIX + path.format(**row.path(world, things))
    body = row.body(world, things) if row.body else None
    return await client.request(method, address, params=row.query, headers=headers, json=body)


async def test_every_operation_has_a_row_and_every_row_an_operation() -> None:
    assert {(method, path) for method, path, _ in OPERATIONS} == set(ROWS)


@pytest.mark.parametrize(("method", "path", "needed"), OPERATIONS, ids=IDS)
async def test_a_role_may_what_it_may_and_nothing_above(
    house: House, client: Any, world: World, method: str, path: str, needed: Requirement
) -> None:
    for role in ROLES:
        answer = await ask(client, await house.token(role), method, path, ROWS[method, path], world, world.acme)
        if ROLES.index(role) < ROLES.index(LEAST_ROLE[needed.permission]):
            assert (answer.status_code, answer.json()["code"]) == (403, "ROLE_TOO_LOW"), role
        else:
            assert answer.status_code in ROWS[method, path].answers, (role, answer.text)


@pytest.mark.parametrize(("method", "path", "needed"), OPERATIONS, ids=IDS)
async def test_who_sees_one_tenant_is_told_nothing_of_another(
    house: House, client: Any, world: World, method: str, path: str, needed: Requirement
) -> None:
    row = ROWS[method, path]
    assert row.whole is needed.all_tenants
    foreign = {*world.umbrella.ids.values(), world.umbrella.replay, w.MARK}
    for role in ROLES:
        secret = await house.token(role, "acme")
        own, other, unknown = [
            await ask(client, secret, method, path, row, world, things)
            for things in (world.acme, world.umbrella, world.nobody)
        ]
        if ROLES.index(role) < ROLES.index(LEAST_ROLE[needed.permission]):
            assert {one.json()["code"] for one in (own, other, unknown)} == {"ROLE_TOO_LOW"}
            continue
        if needed.all_tenants:
            assert {one.json()["code"] for one in (own, other, unknown)} == {"ONE_TENANT_ONLY"}
            continue
        assert own.status_code in row.answers, own.text
        assert not [one for one in foreign if one in own.text]
        assert (other.status_code, shape(other)) == (unknown.status_code, shape(unknown))
        if "{" not in path and row.body is None:
            assert not [one for one in foreign if one in other.text]


def shape(answer: Any) -> Any:
    """The answer without the ids and names that were asked for."""
    text = _UUID.sub("ID", json.dumps(answer.json()))
    text = re.sub(r'"at": "[^"]+"|"oldest_due_seconds": [0-9.]+', "", text)
    return re.sub(r"'(acme|umbrella|nobody|umbrella-secret-key)'", "NAME", text)


async def test_nothing_of_another_tenant_was_changed(house: House, client: Any, world: World) -> None:
    """After whatever the tests above did, in whatever order: an operator of acme tries it all on umbrella again."""
    before = _state(house)
    secret = await house.token(Role.ADMIN, "acme")
    for method, path, _ in OPERATIONS:
        if method == "POST":
            await ask(client, secret, method, path, ROWS[method, path], world, world.umbrella)
    assert _state(house) == before


def _state(house: House) -> list[tuple[Any, ...]]:
    return house.execute(
        "SELECT 'parked', id::text, row_version::text, workflow FROM redrive.parked WHERE tenant = 'umbrella'"
        " UNION ALL SELECT 'message', id::text, redrive.state_of(id), '' FROM redrive.message WHERE tenant = 'umbrella'"
        " UNION ALL SELECT 'replay', id::text, status, '' FROM redrive.replay WHERE filter->>'tenant' = 'umbrella'"
        " ORDER BY 1, 2"
    )


async def test_each_operation_asks_a_bounded_number_of_things(
    house: House, client: Any, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    asked: list[str] = []
    execute = psycopg.AsyncCursor.execute

    async def counted(self: Any, query: Any, *values: Any, **options: Any) -> Any:
        asked.append(str(query))
        return await execute(self, query, *values, **options)

    monkeypatch.setattr(psycopg.AsyncCursor, "execute", counted)
    secret = await house.token(Role.ADMIN)
    for method, path, _ in OPERATIONS:
        asked.clear()
        await ask(client, secret, method, path, ROWS[method, path], world, world.acme)
        assert len(asked) <= STATEMENTS.get(path, 24), (method, path, len(asked))


# The doctor looks at everything there is; the others at what was asked for, in sets.
STATEMENTS = {"/doctor": 60}
