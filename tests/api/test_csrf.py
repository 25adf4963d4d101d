"""A page of somebody else cannot let a browser do anything: each unsafe route, each way."""

from __future__ import annotations

import re
from typing import Any
from uuid import uuid4

import pytest

from redrive.operate.web.app import routes_of
from redrive.operate.web.principal import Principal, Role
from tests.api.conftest import ORIGIN, House, asking, routes
from tests.api.test_authentication import PEER, log_in

pytestmark = [pytest.mark.req("G-21")]


def unsafe_routes() -> list[tuple[str, str]]:
    app: Any = routes().app
    found = {(method, path) for path, methods, _ in routes_of(app) for method in methods}
    return sorted((method, path) for method, path in found if method not in {"GET", "HEAD", "OPTIONS"})


FORGED: dict[str, dict[str, str]] = {
    "from another origin": {"Origin": "http://evil.test"},
    "from no origin": {"Origin": "null"},
    "from an origin that begins like ours": {"Origin": f"{ORIGIN}.evil.test"},
    "from ours by another scheme": {"Origin": ORIGIN.replace("http:", "https:")},
    "from another site, says the browser": {"Origin": ORIGIN, "Sec-Fetch-Site": "cross-site"},
    "from a sister of ours, says the browser": {"Origin": ORIGIN, "Sec-Fetch-Site": "same-site"},
    "from nowhere": {},
    "with no token": {"Origin": ORIGIN, "X-CSRF-Token": ""},
    "with a token of somebody else": {"Origin": ORIGIN, "X-CSRF-Token": "0" * 64},
}


@pytest.mark.parametrize("how", FORGED, ids=lambda how: how.replace(" ", "-"))
async def test_no_unsafe_route_follows_a_page_of_somebody_else(house: House, how: str) -> None:
    async with asking(house.app()) as client:
        assert (await log_in(client, await house.token(Role.ADMIN))).status_code == 303
        page = await client.get("/login")
        token = re.findall(r'name="csrf" value="([^"]+)"', page.text)[0]
        routes = unsafe_routes()
        assert len(routes) > 20
        for method, path in routes:
            address = re.sub(r"\{[^}]+\}", lambda _: str(uuid4()), path)
            headers = {"X-CSRF-Token": token, "Idempotency-Key": str(uuid4()), **FORGED[how]}
            answer = await client.request(method, address, json={}, headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (403, "FORGED_REQUEST"), path


async def test_with_the_token_of_the_page_a_session_may_act(house: House) -> None:
    async with asking(house.app()) as client:
        await log_in(client, await house.token(Role.OPERATOR))
        page = await client.get("/login")
        token = re.findall(r'name="csrf" value="([^"]+)"', page.text)[0]
        headers = {"X-CSRF-Token": token, "Origin": ORIGIN, "Idempotency-Key": "k", "Sec-Fetch-Site": "same-origin"}
        body = {"act": "cancel", "ids": [str(uuid4())], "reason": "x"}
        answer = await client.post("/api/v1/acts", json=body, headers=headers)
        assert answer.json()["not_found"] == 1


async def test_the_token_of_one_session_is_of_no_use_in_another(house: House) -> None:
    async with asking(house.app()) as one, asking(house.app()) as other:
        for client in (one, other):
            await log_in(client, await house.token(Role.OPERATOR))
        page = await one.get("/login")
        token = re.findall(r'name="csrf" value="([^"]+)"', page.text)[0]
        answer = await other.post("/logout", data={"csrf": token}, headers={"Origin": ORIGIN})
        assert answer.status_code == 403


async def test_who_comes_through_a_proxy_needs_the_token_too(house: House) -> None:
    users = {"anna": Principal("anna", Role.OPERATOR, "*")}
    async with asking(house.app(proxy_peers=frozenset({PEER}), proxy_users=users)) as client:
        anna = {"X-Forwarded-User": "anna", "Origin": ORIGIN}
        body = {"act": "cancel", "ids": [str(uuid4())], "reason": "x"}
        refused = await client.post("/api/v1/acts", json=body, headers={**anna, "Idempotency-Key": "1"})
        assert refused.json()["code"] == "FORGED_REQUEST"
        page = await client.get("/login", headers=anna)
        token = re.findall(r'name="csrf" value="([^"]+)"', page.text)[0]
        headers = {**anna, "Idempotency-Key": "2", "X-CSRF-Token": token}
        assert (await client.post("/api/v1/acts", json=body, headers=headers)).status_code == 200


async def test_nothing_is_changed_by_looking(house: House) -> None:
    async with asking(house.app()) as client:
        app: Any = client._transport.app.app
        for path, methods, _ in routes_of(app):
            if "GET" in methods:
                assert "POST" not in methods, path
