"""What holds for every change and every page of the API, and the ways of money."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from uuid import uuid4

import pytest

from redrive.operate.web.app import API_PREFIX
from redrive.operate.web.principal import Role
from redrive.ports import ClaimRequest, RelayInfo
from redrive.store.runtime.postgres import PostgresStore
from tests.api import world as w
from tests.api.conftest import House, asking, bearer
from tests.support import messages as m

pytestmark = [pytest.mark.req("G-21")]
JSON = {"Content-Type": "application/json"}


async def head(
    house: House, role: Role = Role.OPERATOR, tenant: str = "*", *, key: str | None = None
) -> dict[str, str]:
    """Headers of a change."""
    return {**bearer(await house.token(role, tenant)), "Idempotency-Key": key or str(uuid4())}


async def dead(house: House, **values: Any) -> str:
    """A dead letter of its own."""
    destination = values.setdefault("destination", f"shop-{uuid4().hex[:8]}")
    async with PostgresStore(house.dsn, connections=2) as store:
        id_ = await m.enqueue(store, **values)
        taken = await store.claim(m.WORKER, [ClaimRequest(destination, 1, 100)], lease_seconds=60, now=m.START)
        (attempt,) = (one for one in taken.attempts if one.id == id_)
        await m.settle(store, attempt, m.park(error_class="HTTP_409"), text="no")
        return str(id_)


async def test_a_change_asked_for_twice_is_made_once_and_answered_alike(house: House) -> None:
    id_ = await dead(house)
    async with asking(house.app()) as client:
        headers = await head(house)
        address, body = f"{API_PREFIX}/messages/{id_}/requeue", {"reason": "INC-7"}
        first, second = [await client.post(address, json=body, headers=headers) for _ in range(2)]
        assert (first.status_code, first.json()["outcome"]) == (200, "done")
        assert (second.status_code, second.content) == (200, first.content)
        assert second.headers["idempotent-replayed"] == "true"
        assert second.headers["content-type"] == first.headers["content-type"]
        acts = house.execute("SELECT actor FROM redrive.operator_action WHERE subject = %s AND act = 'requeue'", id_)
        assert acts == [("operator of *",)]
        other = await client.post(address, json={"reason": "another"}, headers=headers)
        assert (other.status_code, other.json()["code"]) == (422, "IDEMPOTENCY_KEY_REUSED")
        refused = await client.post(address, json=body, headers=await head(house))
        assert (refused.status_code, refused.json()["code"]) == (409, "ACT_REFUSED")


async def test_a_refusal_is_the_same_when_asked_again_and_one_person_s_key_is_not_another_s(house: House) -> None:
    id_ = await dead(house)
    async with asking(house.app()) as client:
        address, body = f"{API_PREFIX}/messages/{id_}/deny", {"reason": "INC-7"}
        key = str(uuid4())
        answers = [await client.post(address, json=body, headers=await head(house, key=key)) for _ in range(2)]
        assert [one.status_code for one in answers] == [409, 409]
        assert answers[0].content == answers[1].content
        assert answers[1].headers["content-type"] == "application/problem+json"
        twins = [await house.token(Role.OPERATOR, tenant, name="operator of *") for tenant in ("default", "another")]
        for secret, status in zip(twins, (409, 404), strict=True):
            other = await client.post(address, json=body, headers={**bearer(secret), "Idempotency-Key": key})
            assert other.status_code == status
            assert "idempotent-replayed" not in other.headers


@pytest.mark.parametrize("key", [None, "", " ", "a b", "x" * 256, "é"])
async def test_a_change_needs_a_key_that_can_be_kept(house: House, key: str | None) -> None:
    async with asking(house.app()) as client:
        headers: list[tuple[str, str | bytes]] = list(bearer(await house.token(Role.OPERATOR)).items())
        if key is not None:
            headers.append(("Idempotency-Key", key.encode()))
        answer = await client.post(f"{API_PREFIX}/acts", json={}, headers=headers)
        assert answer.status_code == 400
        assert answer.json()["code"].startswith("IDEMPOTENCY_KEY_")


async def test_while_the_first_is_under_way_the_second_is_told_so(house: House) -> None:
    async with asking(house.app()) as client:
        headers = await head(house)
        address, body = f"{API_PREFIX}/groups/{'0' * 32}/resolve", {"reason": "x"}
        first = await client.post(address, json=body, headers=headers)
        assert first.status_code == 404
        house.execute("UPDATE redrive.api_request SET status = NULL, answer = NULL")
        second = await client.post(address, json=body, headers=headers)
        assert (second.status_code, second.json()["code"]) == (409, "IN_FLIGHT")
        house.execute("UPDATE redrive.api_request SET asked_at = now() - interval '2 minutes'")
        assert (await client.post(address, json=body, headers=headers)).status_code == 404  # its process is gone


async def test_a_key_whose_request_was_not_made_is_free_again(house: House) -> None:
    async with asking(house.app()) as client:
        headers = await head(house, Role.VIEWER)
        for _ in range(2):
            answer = await client.post(f"{API_PREFIX}/acts", json={}, headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (403, "ROLE_TOO_LOW")
        assert house.execute("SELECT 1 FROM redrive.api_request WHERE actor = 'viewer of *'") == []


async def test_the_secret_of_a_token_is_told_once_and_kept_nowhere(house: House) -> None:
    async with asking(house.app()) as client:
        headers = await head(house, Role.ADMIN)
        body = {"name": "bot", "role": "viewer", "tenant": "acme", "days": 1, "reason": "x"}
        first, second = [await client.post(f"{API_PREFIX}/tokens", json=body, headers=headers) for _ in range(2)]
        secret = first.json()["secret"]
        assert (await client.get(f"{API_PREFIX}/me", headers=bearer(secret))).json()["tenant"] == "acme"
        assert second.json() == {"id": first.json()["id"], "secret": None}
        for table in ("access_token", "api_request", "operator_action"):
            kept = house.execute(f"SELECT coalesce(string_agg(t::text, ''), '') FROM redrive.{table} t")[0][0]
            assert secret not in kept
            assert secret.encode().hex() not in kept


async def test_of_two_who_edit_the_same_letter_the_second_is_told(house: House) -> None:
    id_ = await dead(house)
    async with asking(house.app()) as client:
        why = {"ids": [id_], "cause": "data", "reason": "INC-7"}
        said = await client.post(f"{API_PREFIX}/dead/triage", json=why, headers=await head(house))
        assert said.json()["done"] == 1
        seen = (await client.get(f"{API_PREFIX}/parked/{id_}", headers=await head(house))).json()["row_version"]
        body = {"patch": [{"op": "replace", "path": "/order", "value": 2}], "row_version": seen, "reason": "INC-7"}
        address = f"{API_PREFIX}/dead/{id_}/edit"
        dry = await client.post(address, json={**body, "dry_run": True}, headers=await head(house))
        assert (json.loads(dry.json()["before"]), json.loads(dry.json()["after"])) == ({"order": 1}, {"order": 2})
        first = await client.post(address, json=body, headers=await head(house))
        assert first.json()["result"]["outcome"] == "done"
        second = await client.post(address, json=body, headers=await head(house, Role.ADMIN))
        assert (second.status_code, second.json()["code"]) == (409, "CHANGED")
        assert second.json()["row_version"] > seen


async def test_who_looks_at_a_payload_is_in_the_audit_and_who_may_not_sees_nothing(house: House) -> None:
    id_ = await dead(house, body=b'{"n": 12345678901234567890.10}')
    async with asking(house.app()) as client:
        address = f"{API_PREFIX}/messages/{id_}/payload"
        shown = await client.get(address, headers=await head(house))
        assert shown.json()["text"] == '{"n": 12345678901234567890.10}'  # every digit as it was sent
        assert (await client.get(address, headers=await head(house, Role.VIEWER))).status_code == 403
        life = await client.get(f"{API_PREFIX}/messages/{id_}", headers=await head(house, Role.VIEWER))
        assert "12345678901234567890" not in life.text
    acts = house.execute("SELECT actor, act FROM redrive.operator_action WHERE subject = %s", id_)
    assert acts == [("operator of *", "read_payload")]


@pytest.mark.req("G-16")
async def test_what_moves_money_takes_two_people_and_the_second_is_an_approver(house: House) -> None:
    async with PostgresStore(house.dsn) as store:
        relay = RelayInfo(
            worker=m.OTHER_WORKER, name="r", host="h", pid=1, version="1", destinations=["bank"], money=["bank"]
        )
        await store.register(relay)
    id_ = await dead(house, destination="bank")
    async with asking(house.app()) as client:
        address, body = f"{API_PREFIX}/messages/{id_}/requeue", {"reason": "INC-7"}
        one = await client.post(address, json=body, headers=await head(house))
        assert (one.status_code, "second person" in one.json()["detail"]) == (409, True)
        same = await client.post(address, json=body, headers=await head(house))
        assert same.status_code == 409
        colleague = await house.token(Role.OPERATOR, name="ben")
        second = await client.post(address, json=body, headers={**bearer(colleague), "Idempotency-Key": "b"})
        assert (second.status_code, second.json()["code"]) == (403, "ROLE_TOO_LOW")
        third = await client.post(address, json=body, headers=await head(house, Role.APPROVER))
        assert third.json()["outcome"] == "done"
        other = await dead(house, destination="bank")
        wanted = {"name": "r", "ids": [other], "override": True, "reason": "INC-7"}
        made = await client.post(f"{API_PREFIX}/replays", json=wanted, headers=await head(house, Role.APPROVER))
        assert (made.status_code, made.json()["status"]) == (201, "waiting")
        approve = f"{API_PREFIX}/replays/{made.json()['id']}/approve"
        own = await client.post(approve, json=body, headers=await head(house, Role.APPROVER))
        assert (own.status_code, own.json()["code"]) == (409, "ACT_REFUSED")
        assert (await client.post(approve, json=body, headers=await head(house))).status_code == 403
        done = await client.post(approve, json=body, headers=await head(house, Role.ADMIN))
        assert (done.status_code, done.json()["approved_by"]) == (200, "admin of *")


@pytest.mark.req("P-12")
async def test_of_two_operators_who_ask_at_the_same_instant_none_passes_without_an_approver(house: House) -> None:
    house.execute("INSERT INTO redrive.destination (name, money) VALUES ('bank', true) ON CONFLICT DO NOTHING")
    people = [bearer(await house.token(Role.OPERATOR, name=name)) for name in ("ada", "ben")]
    ids = [await dead(house, destination="bank") for _ in range(20)]
    async with asking(house.app()) as client:

        async def ask(id_: str, who: dict[str, str]) -> tuple[int, str]:
            headers = {**who, "Idempotency-Key": str(uuid4())}
            answer = await client.post(f"{API_PREFIX}/messages/{id_}/requeue", json={"reason": "x"}, headers=headers)
            return answer.status_code, answer.json()["code"]

        for id_ in ids:
            answers = await asyncio.gather(*(ask(id_, who) for who in people))
            assert sorted(answers) == [(403, "ROLE_TOO_LOW"), (409, "ACT_REFUSED")]
            assert house.execute("SELECT reason FROM redrive.parked WHERE id = %s", id_) == [("dead",)]


@pytest.mark.req("P-12")
async def test_the_payload_of_money_is_changed_by_one_and_approved_by_another_who_has_seen_it(house: House) -> None:
    house.execute("INSERT INTO redrive.destination (name, money) VALUES ('bank', true) ON CONFLICT DO NOTHING")
    id_ = await dead(house, destination="bank")
    address = f"{API_PREFIX}/dead/{id_}"
    async with asking(house.app()) as client:
        why = {"ids": [id_], "cause": "data", "reason": "INC-7"}
        await client.post(f"{API_PREFIX}/dead/triage", json=why, headers=await head(house))
        assert (await client.get(f"{address}/proposed", headers=await head(house))).status_code == 404
        body = {"patch": [{"op": "replace", "path": "/order", "value": 2}], "row_version": 2, "reason": "INC-7"}
        first = await client.post(f"{address}/edit", json=body, headers=await head(house))
        assert (first.status_code, "second person" in first.json()["detail"]) == (409, True)
        life = await client.get(f"{API_PREFIX}/messages/{id_}", headers=await head(house, Role.VIEWER))
        assert [(one["act"], one["asked_by"]) for one in life.json()["proposals"]] == [("edit", "operator of *")]
        seen = (await client.get(f"{address}/proposed", headers=await head(house, Role.APPROVER))).json()
        assert (json.loads(seen["before"]), json.loads(seen["after"])) == ({"order": 1}, {"order": 2})
        approval = {"sha256": seen["sha256"], "reason": "INC-7"}
        colleague = {**bearer(await house.token(Role.OPERATOR, name="ben")), "Idempotency-Key": "b2"}
        too_low = await client.post(f"{address}/approve", json=approval, headers=colleague)
        assert (too_low.status_code, too_low.json()["code"]) == (403, "ROLE_TOO_LOW")
        other = await client.post(
            f"{address}/approve", json={**approval, "sha256": "0" * 64}, headers=await head(house, Role.APPROVER)
        )
        assert (other.status_code, other.json()["code"]) == (409, "ACT_REFUSED")
        done = await client.post(f"{address}/approve", json=approval, headers=await head(house, Role.APPROVER))
        assert (done.status_code, done.json()["result"]["outcome"]) == (200, "done")
    assert house.execute("SELECT version FROM redrive.parked WHERE id = %s", id_) == [(2,)]


@pytest.mark.parametrize("name", ["actor", "tenant", "principal"])
async def test_no_request_says_who_acts(house: House, name: str) -> None:
    id_ = await dead(house)
    async with asking(house.app()) as client:
        body = {"reason": "x", name: "somebody else"}
        address = f"{API_PREFIX}/messages/{id_}/requeue"
        assert (await client.post(address, json=body, headers=await head(house))).status_code == 422
        listed = await client.get(f"{API_PREFIX}/me?{name}=other", headers={**await head(house), "X-Tenant": "acme"})
        assert listed.json()["name"] == "operator of *"


async def test_pages_go_on_where_they_ended_and_show_each_row_once(house: House) -> None:
    ids = [await dead(house, destination="paged") for _ in range(5)]
    async with asking(house.app()) as client:
        headers = await head(house)
        for path, query in [("/messages", {}), ("/parked", {"reason": "dead"})]:
            seen: list[str] = []
            following: dict[str, str] = {}
            for _ in range(10):
                page = await client.get(
                    API_PREFIX + path,
                    params={"destination": "paged", "limit": "2", **query, **following},
                    headers=headers,
                )
                seen += [row["id"] for row in page.json()["items"]]
                if page.json()["next"] is None:
                    break
                following = {"after": page.json()["next"]}
            assert seen == ids[::-1]


BAD: dict[str, tuple[dict[str, str], bytes, int]] = {
    "too large": (JSON, b'"' + b"x" * 300_000 + b'"', 413),
    "too deep": (JSON, b"[" * 100_000 + b"]" * 100_000, 400),
    "one level too deep": (JSON, b"[" * 65 + b"]" * 65, 400),
    "no JSON": (JSON, b"{", 400),
    "not UTF-8": (JSON, b'{"reason": "\xff"}', 400),
    "NUL": (JSON, b'{"act": "requeue", "ids": [], "reason": "\\u0000"}', 400),
    "half a pair": (JSON, b'{"reason": "\\ud800"}', 400),
    "a number of many digits": (JSON, b'{"reason": ' + b"9" * 5000 + b"}", 400),
    "another type": ({"Content-Type": "text/plain"}, b"hello", 422),
    "a list": (JSON, b"[]", 422),
    "nothing": (JSON, b"", 422),
    "an unknown field": (JSON, b'{"act": "requeue", "ids": [], "reason": "x", "more": 1}', 422),
    "too many ids": (JSON, json.dumps({"act": "requeue", "ids": [str(uuid4())] * 1001, "reason": "x"}).encode(), 422),
    "no reason": (JSON, json.dumps({"act": "requeue", "ids": [str(uuid4())], "reason": " "}).encode(), 422),
}


@pytest.mark.parametrize("what", BAD)
async def test_what_cannot_be_accepted_is_a_problem_with_a_code_and_without_a_stack(house: House, what: str) -> None:
    headers, body, status = BAD[what]
    async with asking(house.app()) as client:
        answer = await client.post(f"{API_PREFIX}/acts", content=body, headers={**await head(house), **headers})
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert {"type", "title", "status", "detail", "code"} <= set(answer.json())
    assert "Traceback" not in answer.text
    assert ".py" not in answer.text


@pytest.mark.parametrize(
    "address",
    [
        "/messages?limit=0",
        "/messages?limit=1001",
        "/messages?state=nonsense",
        "/messages?after=nonsense",
        "/messages?after=WyJ4Il0",
        "/parked?reason=dead&after=WyIyMDI2LTAxLTAxIiwgIngiXQ",
        "/keys?after=WyJoYWx0ZWQiLCAiOTk5OTk5OTk5OTk5OTk5OTk5OTk5OTkifQ",
        "/audit?after=WyItNSJd",
        "/messages/not-an-id",
        "/groups/xyz",
        "/audit/verify?head=nonsense",
        f"/messages?destination={'x' * 101}",
        "/messages?destination=%0a",
    ],
)
async def test_an_address_with_values_out_of_bounds_is_refused(house: House, address: str) -> None:
    async with asking(house.app()) as client:
        answer = await client.get(API_PREFIX + address, headers=await head(house))
    assert answer.status_code == 422, answer.text
    assert answer.json()["code"] == "INVALID_VALUE"


async def test_a_database_that_does_not_answer_is_said_without_its_address() -> None:
    nowhere = House("host=192.0.2.1 port=1 user=anna password=geheim dbname=x connect_timeout=1 hostaddr=127.0.0.1")
    async with asking(nowhere.app()) as client:
        answer = await client.get(f"{API_PREFIX}/me", headers=bearer("rdt_x"))
    assert (answer.status_code, answer.json()["code"]) == (503, "UNREACHABLE")
    assert "geheim" not in answer.text
    assert "127.0.0.1" not in answer.text


async def test_tenants_that_take_turns_on_the_same_connections_see_their_own(house: House) -> None:
    """A hundred and fifty requests over eight connections, in and out of order: never a row of another one."""

    for tenant in ("one", "two", "three"):
        await dead(house, tenant=tenant, kind=f"kind-{tenant}", destination="turns")
    async with asking(house.app()) as client:
        headers = {tenant: bearer(await house.token(Role.VIEWER, tenant)) for tenant in ("one", "two", "three")}

        async def look(tenant: str) -> None:
            answer = await client.get(f"{API_PREFIX}/parked?reason=dead", headers=headers[tenant])
            assert [row["kind"] for row in answer.json()["items"]] == [f"kind-{tenant}"]

        await asyncio.gather(*(look(tenant) for _ in range(50) for tenant in headers))


async def test_a_login_that_is_a_member_of_the_console_s_roles_is_enough(house: House, server_dsn: str) -> None:
    import psycopg

    name = f"redrive_test_{uuid4().hex[:12]}"
    world = await w.made(house.dsn)
    with psycopg.connect(server_dsn, autocommit=True) as connection:
        roles = "redrive_console, redrive_approver, redrive_viewer"
        connection.execute(f"CREATE ROLE {name} LOGIN IN ROLE {roles}".encode())
        try:
            limited = House(psycopg.conninfo.make_conninfo(house.dsn, user=name), house.secrets)
            operator = bearer(await house.token(Role.OPERATOR, "acme"))
            async with asking(limited.app()) as client:
                for path in ("/me", "/status", "/messages", f"/messages/{world.acme['held']}/payload", "/keys"):
                    assert (await client.get(API_PREFIX + path, headers=operator)).status_code == 200, path
                foreign = await client.get(f"{API_PREFIX}/messages/{world.umbrella['held']}", headers=operator)
                assert foreign.status_code == 404
                approver = bearer(await house.token(Role.APPROVER, "acme"))
                for path in ("/messages", f"/messages/{world.acme['held']}/payload"):
                    assert (await client.get(API_PREFIX + path, headers=approver)).status_code == 200, path
        finally:
            connection.execute(f"DROP ROLE {name}".encode())
