"""Every page over HTTP: that it is there, that no text of anybody runs, that it asks a bounded number of questions."""

from __future__ import annotations

import asyncio
import csv
import io
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

from redrive.operate.console.routes import ADDRESSES, Shared
from redrive.operate.web.principal import Role
from redrive.store.runtime.postgres import PostgresStore
from tests.api.conftest import House, asking, bearer, routes
from tests.console.hostile import PAYLOADS, World, faults_of, fill, parsed
from tests.desk.failing import dead
from tests.support import messages as m
from tests.support.workers import BILLING, INFO, OTHER

pytestmark = pytest.mark.req("G-21")
HTML = {"Accept": "text/html"}
STATEMENTS_MAX = 40  # of one page, whatever is in the database


@pytest.fixture(scope="module")
def world(house: House) -> World:
    async def made() -> World:
        async with PostgresStore(house.dsn, connections=2) as store:
            return await fill(store, house.dsn)

    return asyncio.run(made())


@pytest.fixture
async def admin(house: House, world: World) -> AsyncIterator[Any]:
    secret = await house.token(Role.ADMIN)
    async with asking(house.app(), headers={**bearer(secret), **HTML}) as client:
        yield client


def paths(world: World) -> Iterator[str]:
    """Every address that can be read, with everything that is there."""
    for address in ADDRESSES:
        if address.method != "GET" or address.path in ("/live", "/find"):
            continue
        yield from _filled(address.path, world)
    for text in PAYLOADS:
        asked = quote(text, safe="")
        yield f"/messages?destination={asked}&kind={asked}&tenant={asked}&key={asked}"
        yield f"/parked/dead?destination={asked}&error_class={asked}&kind={asked}&tenant={asked}"
        yield f"/audit?subject={asked}"
        yield f"/destinations/{asked}"
        yield f"/groups?destination={asked}&view={asked}"
        yield f"/keys?destination={asked}&tenant={asked}"
        yield f"/keys/skip?tenant=default&key={asked}"
        yield f"/messages/{asked}"
        yield f"/replays/{asked}"
        yield f"/groups/{asked}"


def _filled(path: str, world: World) -> Iterator[str]:
    match path:
        case "/groups/{group}" | "/groups/{group}/edit":
            yield from (path.format(group=group) for group in world.groups)
        case "/replays/{replay}":
            yield path.format(replay=world.replay)
        case "/messages/{id}" | "/messages/{id}/edit":
            yield from (path.format(id=id_) for id_ in world.ids)
        case "/messages/{id}/{act}":
            yield from (path.format(id=world.ids[0], act=act) for act in ("requeue", "discard", "confirm", "nonsense"))
        case "/parked/{reason}" | "/parked/{reason}/export":
            yield from (path.format(reason=reason) for reason in ("dead", "held", "unrecorded", "nonsense"))
        case "/destinations/{name:path}" | "/keys/skip":
            return
        case _:
            yield path


@pytest.mark.full
async def test_no_text_of_anybody_runs_on_any_page(admin: Any, world: World) -> None:
    looked, faults = 0, []
    for path in paths(world):
        answer = await admin.get(path, follow_redirects=True)
        assert answer.status_code < 500, (path, answer.text[:2000])
        assert answer.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
        if answer.headers["content-type"].startswith("text/html"):
            looked += 1
            faults += [(path, fault) for fault in faults_of(answer.text)]
    assert faults == []
    assert looked > 8 * len(PAYLOADS)


async def test_what_is_hostile_is_there_and_harmless(admin: Any, world: World) -> None:
    """Else the test before would be content with empty pages."""
    listed = (await admin.get("/parked/dead")).text
    shown = (await admin.get(f"/messages/{world.ids[2]}")).text
    assert "&lt;img src=x onerror=alert(1)&gt;" in listed
    assert "&lt;img src=x onerror=alert(1)&gt;" in shown


@pytest.mark.parametrize("path", ["/parked/dead/export", "/audit/export"])
async def test_no_cell_of_an_export_is_a_formula(admin: Any, world: World, path: str) -> None:
    answer = await admin.get(path)
    rows = list(csv.reader(io.StringIO(answer.text)))
    assert len(rows) > len(PAYLOADS)
    assert "attachment" in answer.headers["content-disposition"]
    assert not [cell for row in rows for cell in row if cell.startswith(("=", "+", "-", "@", "\t", "\r"))]
    assert not [cell for row in rows for cell in row if "\n" in cell or "\u202e" in cell]


async def test_values_of_a_payload_are_hidden_until_somebody_says_why(admin: Any, house: House, world: World) -> None:
    async with PostgresStore(house.dsn, connections=1) as store:
        body = b'{"iban":"DE89370400440532013000","amount":12.50,"password":"hunter2","paid":null}'
        id_ = await m.enqueue(store, body=body, headers={"authorization": "Bearer s3cret", "x-trace": "t-1"})
    hidden = (await admin.get(f"/messages/{id_}")).text
    assert "iban" in hidden
    assert not [word for word in ("DE8937", "12.50", "hunter2", "s3cret", "t-1") if word in hidden]
    refused = await admin.post(f"/messages/{id_}/reveal", data={"reason": " "})
    assert refused.status_code == 422
    shown = (await admin.post(f"/messages/{id_}/reveal", data={"reason": "INC-7"})).text
    assert "DE89370400440532013000" in shown
    assert "12.50" in shown, "a number keeps its digits"
    assert "hunter2" not in shown
    assert "s3cret" not in shown
    noted = house.execute(
        "SELECT reason FROM redrive.operator_action WHERE act = 'read_payload' AND subject = %s", str(id_)
    )
    assert noted == [("INC-7",)]


@pytest.mark.parametrize(
    "path", ["/", "/messages", "/parked/dead", "/groups", "/replays", "/destinations", "/keys", "/relays", "/audit"]
)
async def test_a_page_asks_a_bounded_number_of_questions(
    admin: Any, world: World, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = 0
    plain = psycopg.AsyncCursor.execute

    async def count(self: Any, *args: Any, **values: Any) -> Any:
        nonlocal counted
        counted += 1
        return await plain(self, *args, **values)

    monkeypatch.setattr(psycopg.AsyncCursor, "execute", count)
    assert (await admin.get(path)).status_code == 200
    assert 0 < counted <= STATEMENTS_MAX


async def test_who_may_not_act_sees_the_buttons_and_why_they_are_off(house: House, world: World) -> None:
    secret = await house.token(Role.VIEWER)
    async with asking(house.app(), headers={**bearer(secret), **HTML}) as viewer:
        shown = (await viewer.get(f"/groups/{world.groups[0]}")).text
        assert "needs the permission “act”" in shown
        assert "needs the permission “payload”" in shown
        denied = await viewer.post(
            f"/groups/{world.groups[0]}/triage", data={"reason": "x", "cause": "data", "form_token": "k"}
        )
        assert denied.status_code == 403
        assert (await viewer.get(f"/groups/{world.groups[0]}/edit")).status_code == 403


async def test_who_sees_one_tenant_sees_nothing_of_the_others(house: House, world: World) -> None:
    secret = await house.token(Role.OPERATOR, "acme")
    async with asking(house.app(), headers={**bearer(secret), **HTML}) as acme:
        home = (await acme.get("/")).text
        assert "Everything flows" in home
        assert "alert(1)" not in home
        for path in ("/groups", "/replays", "/destinations", "/relays", "/audit"):
            assert (await acme.get(path)).status_code == 403
            assert f'href="{path}"' not in home
        foreign = await acme.get(f"/messages/{world.ids[0]}")
        unknown = await acme.get("/messages/00000000-0000-7000-8000-000000000000")
        assert (foreign.status_code, unknown.status_code) == (404, 404)
        assert foreign.text.replace(str(world.ids[0]), "") == unknown.text.replace(
            "00000000-0000-7000-8000-000000000000", ""
        )


async def test_below_a_prefix_every_link_has_it(house: House, world: World) -> None:
    secret = await house.token(Role.ADMIN)
    async with asking(house.app(root_path="/ops"), headers={**bearer(secret), **HTML}) as client:
        for path in ("/", "/groups", f"/groups/{world.groups[0]}", f"/messages/{world.ids[0]}", "/parked/dead"):
            answer = await client.get(f"/ops{path}")
            assert answer.status_code == 200
            links = [link for link in parsed(answer.text).links if link.startswith("/")]
            assert links
            assert not [link for link in links if not link.startswith("/ops/") and link != "/ops"], path
        style = next(link for link in parsed((await client.get("/ops/")).text).links if link.endswith(".css"))
        got = await client.get(style)
        assert got.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert got.headers["content-type"].startswith("text/css")


async def test_a_form_that_is_sent_twice_acts_once(house: House, admin: Any, world: World) -> None:
    async with PostgresStore(house.dsn, connections=1) as store:
        (id_,) = await dead(store, destination="once")
    form = {"reason": "INC-7", "form_token": "one-form"}
    first = await admin.post(f"/messages/{id_}/discard", data=form)
    again = await admin.post(f"/messages/{id_}/discard", data=form)
    assert (first.status_code, again.status_code) == (303, 303)
    assert first.headers["location"] == again.headers["location"]
    assert house.execute("SELECT count(*) FROM redrive.operator_action WHERE subject = %s", str(id_)) == [(1,)]
    shown = (await admin.get(first.headers["location"])).text
    assert "1 message" in shown
    assert "discarded" in shown


async def test_two_console_processes_make_a_form_once(house: House, admin: Any, world: World) -> None:
    async with PostgresStore(house.dsn, connections=1) as store:
        (id_,) = await dead(store, destination="twice")
    form = {"reason": "INC-7", "form_token": "two-processes"}
    await admin.post(f"/messages/{id_}/discard", data=form)
    app: Any = routes().app
    app.state.console = Shared()  # what another process has: nothing of what this one remembers
    again = await admin.post(f"/messages/{id_}/discard", data=form)
    assert "done for <strong>1 message</strong>" in (await admin.get(again.headers["location"])).text
    app.state.console = Shared()
    other = await admin.post(f"/messages/{id_}/discard", data={**form, "reason": "INC-8"})
    assert "sent already with other values" in (await admin.get(other.headers["location"])).text
    assert house.execute("SELECT count(*) FROM redrive.operator_action WHERE subject = %s", str(id_)) == [(1,)]


async def test_a_copy_of_what_was_discarded_is_made_from_its_page(house: House, admin: Any, world: World) -> None:
    async with PostgresStore(house.dsn, connections=1) as store:
        (id_,) = await dead(store, destination="copied")
        await store.discard(id_, actor="ada", reason="by mistake")
    assert f"/messages/{id_}/copy" in (await admin.get(f"/messages/{id_}")).text
    assert 'name="key"' in (await admin.get(f"/messages/{id_}/copy")).text
    form = {"reason": "INC-7", "form_token": "a-copy", "key": "copied:again"}
    made = await admin.post(f"/messages/{id_}/copy", data=form)
    new = made.headers["location"].rsplit("/", 1)[1]
    assert new != str(id_)
    assert house.execute("SELECT destination FROM redrive.message WHERE id = %s", new) == [("copied",)]


async def test_workers_are_shown_beside_relays_and_a_consumer_without_one_too(
    house: House, admin: Any, world: World
) -> None:
    async with PostgresStore(house.dsn, connections=1) as store:
        await store.heartbeat_worker(INFO, [BILLING, replace(BILLING, name="<mail>", is_connected=False)])
        await store.heartbeat_worker(OTHER, [replace(BILLING, name="gone")], now=await store.now() - timedelta(hours=1))
    shown = (await admin.get("/relays")).text
    assert [word in shown for word in ("worker-1", "worker-2", "&lt;mail&gt;", "oldest 1 s")] == [True] * 4
    assert "No live worker runs the consumer <strong>gone</strong>" in shown
    assert re.search(r"; \d+ workers?</span>", (await admin.get("/")).text)


async def test_the_doctor_is_asked_on_request(admin: Any, world: World) -> None:
    assert "PostgreSQL 1" not in (await admin.get("/relays")).text
    examined = (await admin.get("/relays?doctor=1")).text
    assert "the server answers" in examined
    assert "PostgreSQL 1" in examined


async def test_an_act_without_a_reason_is_refused(admin: Any, world: World) -> None:
    refused = await admin.post(f"/messages/{world.ids[0]}/discard", data={"form_token": "k2"})
    assert refused.status_code == 422
    assert "Say why" in refused.text
