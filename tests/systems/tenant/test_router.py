"""The outbox over HTTP: the document's address, fields, filters and refusals; one tenant sees its own (T-06, T-08)."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import psycopg
import pytest

import redrive
from redrive.operate.web.app import create_app
from redrive.operate.web.auth_config import AuthConfig
from redrive.operate.web.middleware import Guard
from redrive.operate.web.principal import Role
from redrive.store.reads.dashboard import list_of_a_system
from redrive.store.runtime.postgres import PostgresStore
from redrive.store.runtime.tenant_store import TenantStore
from redrive.systems import tenant
from redrive.systems.tenant.views import VIEWS
from tests.api.conftest import ORIGIN, House, asking, bearer
from tests.support.databases import fresh_database
from tests.systems.tenant.conftest import delivered_by, outbox, published

pytestmark = [pytest.mark.req("T-06"), pytest.mark.req("T-08")]
Rows = Sequence[Mapping[str, Any]]
OUTBOX = "/api/workflow/outbox"
BUSY = redrive.Retryable("BUSY", "the subscriber is busy")


@pytest.fixture(scope="module")
def house(server_dsn: str, template: str) -> Iterator[House]:
    with fresh_database(server_dsn, template=template) as dsn:
        yield House(dsn)


@pytest.fixture(scope="module")
def application(house: House) -> Guard:
    return create_app(house.dsn, AuthConfig(origin=ORIGIN), systems={"tenant": tenant.system})


@pytest.fixture(scope="module")
def acme(house: House) -> str:
    """A tenant with two events delivered (one after a failure), one dead, one that failed once, and one that waits."""
    name = f"acme-{secrets.token_hex(4)}"
    steps = (None, BUSY, None, redrive.Terminal("GONE", "there is no such subscriber"), BUSY)
    box, _ = outbox(*steps, max_retries=3)
    with psycopg.connect(house.dsn) as conn:
        for number, attempts in enumerate((1, 2, 1, 1)):
            box.writer.add(conn, name, published(version=number))
            for _ in range(attempts):
                conn.execute("UPDATE redrive.pending SET due_at = clock_timestamp() WHERE tenant = %s", [name])
                delivered_by(conn, box)
        box.writer.add(conn, name, tenant.Event("NoteTaken", {}))
        box.writer.add(conn, f"{name}-2", published())
    return name


async def test_the_list_has_the_fields_of_the_document(house: House, application: Guard, acme: str) -> None:
    async with asking(application) as client:
        headers = bearer(await house.token(Role.VIEWER, acme))
        found = (await client.get(f"{OUTBOX}?status=failed", headers=headers)).json()
    assert {name: found[name] for name in ("page", "pageSize", "total", "totalIsCapped")} == {
        "page": 1, "pageSize": 50, "total": 2, "totalIsCapped": False,
    }  # fmt: skip
    by_letter = {one["deadLetter"]: one for one in found["items"]}
    assert set(by_letter[True]) >= {"id", "eventType", "createdAt", "retryCount", "processedAt", "lastErrorSnippet"}
    assert "payload" not in by_letter[True]
    assert by_letter[True]["lastErrorSnippet"] == "there is no such subscriber"
    assert (by_letter[False]["retryCount"], by_letter[False]["lastErrorSnippet"]) == (1, "the subscriber is busy")
    assert by_letter[False]["processedAt"] is None


@pytest.mark.seed("003", "Admin_List_Pending")
@pytest.mark.seed("003", "Admin_Filter_Failed")
@pytest.mark.seed("003", "Outbox_Admin_List_Pending")
@pytest.mark.seed("003", "Outbox_Admin_Filter_By_Status")
async def test_each_status_lists_its_own_events(house: House, application: Guard, acme: str) -> None:
    async with asking(application) as client:
        headers = bearer(await house.token(Role.VIEWER, "*"))

        async def states(query: str) -> list[str]:
            found = (await client.get(f"{OUTBOX}?tenant={acme}&{query}", headers=headers)).json()
            assert found["total"] == len(found["items"])
            return sorted(one["state"] for one in found["items"])

        assert await states("") == ["dead", "pending", "pending"]
        assert await states("status=pending&eventType=NoteTaken") == ["pending"]
        assert await states("status=failed") == ["dead", "pending"]
        assert await states("status=processed") == ["delivered", "delivered"]
        assert await states("status=processed&eventType=NoteTaken") == []


async def test_pages_follow_one_another_newest_first(house: House, application: Guard, acme: str) -> None:
    async with asking(application) as client:
        headers = bearer(await house.token(Role.VIEWER, acme))
        pages = [(await client.get(f"{OUTBOX}?pageSize=2&page={page}", headers=headers)).json() for page in (1, 2, 3)]
    assert [len(page["items"]) for page in pages] == [2, 1, 0]
    assert {page["total"] for page in pages} == {3}
    listed = [one["id"] for page in pages for one in page["items"]]
    assert listed == sorted(listed, reverse=True)


@pytest.mark.req("G-19")
@pytest.mark.parametrize(
    ("query", "field", "rule"),
    [
        ("page=0", "page", "must be a whole number from 1 to 1000"),
        ("page=1001", "page", "must be a whole number from 1 to 1000"),
        ("page=-1", "page", "must be a whole number from 1 to 1000"),
        ("page=x", "page", "must be a whole number from 1 to 1000"),
        ("page=" + "9" * 400, "page", "must be a whole number from 1 to 1000"),
        ("pageSize=0", "pageSize", "must be a whole number from 1 to 200"),
        ("pageSize=201", "pageSize", "must be a whole number from 1 to 200"),
        ("pageSize=1.5", "pageSize", "must be a whole number from 1 to 200"),
        ("status=open", "status", "must be one of pending, failed, processed"),
        ("status=", "status", "must be one of pending, failed, processed"),
        ("eventType=", "eventType", "must have 1 to 100 characters"),
        ("eventType=" + "x" * 101, "eventType", "must have 1 to 100 characters"),
        ("tenant=", "tenant", "must have 1 to 100 characters"),
        ("tenant=" + "x" * 101, "tenant", "must have 1 to 100 characters"),
    ],
)
async def test_a_value_out_of_range_is_refused_with_its_field(
    house: House, application: Guard, query: str, field: str, rule: str
) -> None:
    async with asking(application) as client:
        answer = await client.get(f"{OUTBOX}?{query}", headers=bearer(await house.token(Role.VIEWER, "*")))
    assert (answer.status_code, answer.json()["errors"]) == (400, [{"field": field, "detail": rule}])


@pytest.mark.parametrize(
    "query",
    ["page=1", "page=1000", "pageSize=1", "pageSize=200", "tenant=" + "x" * 100, "eventType=" + "x" * 100],
)
async def test_the_neighbours_of_what_is_refused_are_answered(house: House, application: Guard, query: str) -> None:
    async with asking(application) as client:
        answer = await client.get(f"{OUTBOX}?{query}", headers=bearer(await house.token(Role.VIEWER, "*")))
    assert answer.status_code == 200


async def test_the_description_of_the_api_says_what_fits(house: House, application: Guard) -> None:
    async with asking(application) as client:
        headers = bearer(await house.token(Role.VIEWER, "*"))
        said = (await client.get("/api/v1/openapi.json", headers=headers)).json()["paths"][OUTBOX]["get"]["parameters"]
    fits = {one["name"]: one["schema"] for one in said}
    assert fits["status"]["enum"] == ["pending", "failed", "processed"]
    assert {(fits[name]["minLength"], fits[name]["maxLength"]) for name in ("tenant", "eventType")} == {(1, 100)}


async def test_another_tenant_is_as_one_that_does_not_exist(house: House, application: Guard, acme: str) -> None:
    async with asking(application) as client:
        headers = bearer(await house.token(Role.VIEWER, f"{acme}-3"))
        for path in ("", "/metrics", "/health"):
            foreign = await client.get(f"{OUTBOX}{path}?tenant={acme}", headers=headers)
            unknown = await client.get(f"{OUTBOX}{path}?tenant=nobody", headers=headers)
            assert foreign.status_code == 200
            assert foreign.json() == unknown.json()
        own = (await client.get(OUTBOX, headers=bearer(await house.token(Role.VIEWER, acme)))).json()
        assert {one["tenantId"] for one in own["items"]} == {acme}
        assert (await client.get(OUTBOX)).status_code == 401


async def test_metrics_and_health_are_of_the_callers_tenant(house: House, application: Guard, acme: str) -> None:
    async with asking(application) as client:
        headers = bearer(await house.token(Role.VIEWER, acme))
        found = (await client.get(f"{OUTBOX}/metrics", headers=headers)).json()
        text = await client.get(f"{OUTBOX}/metrics?format=prometheus", headers=headers)
        health = (await client.get(f"{OUTBOX}/health", headers=headers)).json()
        wrong = await client.get(f"{OUTBOX}/metrics?format=xml", headers=headers)
    assert {name: found[name] for name in ("backlogSize", "failedPending", "deadLetters", "processed", "failures")} == {
        "backlogSize": 2, "failedPending": 2, "deadLetters": 1, "processed": 2, "failures": 3,
    }  # fmt: skip
    assert (found["throughput"], found["failureRatio"]) == (2 / 300, 0.6)
    assert "outbox_backlog_size 2.0" in text.text
    assert text.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert (health["verdict"], len(health["reasons"])) == ("unhealthy", 2)
    assert (wrong.status_code, wrong.json()["errors"][0]["field"]) == (400, "format")


@pytest.mark.req("T-09")
async def test_the_console_lists_the_events_of_a_viewers_tenant_newest_first(
    house: House, application: Guard, acme: str
) -> None:
    view = VIEWS["events"]
    async with PostgresStore(house.dsn, connections=1) as store:

        async def listed(whose: str, *, before: str | None = None, search: str | None = None, limit: int = 50) -> Rows:
            seen = TenantStore(store, role="redrive_viewer", tenant=whose)
            sql = view.sql.read_bytes()
            page = await list_of_a_system(seen, sql, position="id", before=before, search=search, limit=limit)
            return page.rows

        mine = await listed(acme)
        assert [one["state"] for one in mine].count("delivered") == 2
        assert sorted(one["state"] for one in mine if one["state"] != "delivered") == ["dead", "pending", "pending"]
        assert [one["id"] for one in mine] == sorted((one["id"] for one in mine), reverse=True)
        assert set(view.columns) <= set(mine[0])
        shown = sorted((one["state"], one["retry_count"]) for one in mine)
        assert shown == [("dead", 1), ("delivered", 0), ("delivered", 1), ("pending", 0), ("pending", 1)]
        assert await listed(acme, limit=2, before=str(mine[1]["id"])) == mine[2:4]
        assert [one["event_type"] for one in await listed(acme, search="NoteTaken")] == ["NoteTaken"]
        assert {one["tenant_id"] for one in await listed("*", search=acme)} == {acme}
        assert await listed("another") == []
    async with asking(application) as client:
        headers = bearer(await house.token(Role.VIEWER, acme)) | {"accept": "text/html"}
        assert "NoteTaken" in (await client.get("/systems/tenant/events", headers=headers)).text
