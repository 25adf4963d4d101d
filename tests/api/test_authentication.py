"""Who gets in, and who does not: tokens, sessions, links, proxies, and the ways around them that are known."""

from __future__ import annotations

import re
from typing import Any

import pytest
from fastapi import APIRouter
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from redrive.errors import OperatorError, SettingsError
from redrive.operate.web.app import create_app
from redrive.operate.web.auth_config import AuthConfig, require_login_method
from redrive.operate.web.dependencies import CurrentPrincipal, require
from redrive.operate.web.principal import Permission, Principal, Role
from redrive.operate.web.secrets import LINK_PREFIX, hash_of, new_secret
from redrive.operate.web.tokens import console_store
from redrive.settings import Settings
from redrive.store.runtime import access
from redrive.store.runtime.access import Bearer
from redrive.store.runtime.postgres import PostgresStore
from redrive.system import System
from tests.api.conftest import ORIGIN, SECURE, House, asking, bearer

ME = "/api/v1/me"
PEER = "192.0.2.7"
PROXY: dict[str, Any] = {
    "proxy_peers": frozenset({PEER}),
    "proxy_users": {"anna": Principal("anna", Role.OPERATOR, "*")},
}
pytestmark = [pytest.mark.req("G-21")]


@pytest.fixture
def fresh(database: str) -> House:
    """A database that no other test looks at: for tests that count what the audit says."""
    return House(database)


async def link_of(house: House, *, valid_seconds: float = 60.0) -> str:
    secret = new_secret(LINK_PREFIX)
    async with PostgresStore(house.dsn, connections=1) as store:
        bearer_ = Bearer("anna", Role.ADMIN, "*")
        values: dict[str, Any] = {"kind": "link", "valid_seconds": valid_seconds, "actor": "anna", "reason": "test"}
        await access.create_token(console_store(store), bearer_, hash_of(secret), **values)
    return secret


async def csrf_of(client: Any) -> str:
    page = await client.get("/login")
    return str(re.findall(r'name="csrf" value="([^"]+)"', page.text)[0])


async def log_in(client: Any, secret: str, **fields: str) -> Any:
    form = {"csrf": await csrf_of(client), "token": secret, **fields}
    return await client.post("/login", data=form, headers={"Origin": str(client.base_url).rstrip("/")})


async def test_a_token_says_who_asks_and_what_they_may(house: House) -> None:
    async with asking(house.app()) as client:
        for role, tenant in [(Role.VIEWER, "acme"), (Role.ADMIN, "*")]:
            said = (await client.get(ME, headers=bearer(await house.token(role, tenant)))).json()
            assert (said["role"], said["tenant"]) == (role, tenant)
            assert ("act" in said["permissions"]) is (role is not Role.VIEWER)


async def test_a_link_is_good_for_one_login_and_its_session_ends_with_the_logout(house: House) -> None:
    link = await link_of(house)
    async with asking(house.app()) as client:
        assert (await client.get(f"/login?link={link}")).status_code == 200  # looking uses nothing up
        assert (await client.get(ME)).status_code == 401
        answer = await log_in(client, link, next="/dead?x=1")
        assert (answer.status_code, answer.headers["location"]) == (303, "/dead?x=1")
        assert "HttpOnly" in answer.headers["set-cookie"]
        assert "SameSite=lax" in answer.headers["set-cookie"]
        assert (await client.get(ME)).json()["name"] == "anna"
        old = dict(client.cookies)
        page = await client.get("/login")
        token = re.findall(r'name="csrf" value="([^"]+)"', page.text)[0]
        assert (await client.post("/logout", data={"csrf": token}, headers={"Origin": ORIGIN})).status_code == 303
        client.cookies.update(old)
        assert (await client.get(ME)).status_code == 401
        client.cookies.clear()
        assert (await log_in(client, link)).status_code == 401  # used up


async def test_a_session_belongs_to_the_database_and_not_to_one_console(house: House) -> None:
    async with asking(house.app()) as one, asking(house.app()) as other:
        assert (await log_in(one, await house.token(Role.OPERATOR, name="both"))).status_code == 303
        other.cookies.update(dict(one.cookies))
        assert (await other.get(ME)).json()["name"] == "both"


async def test_a_session_ends_with_its_token_and_with_time(house: House) -> None:
    secret = await house.token(Role.OPERATOR, name="short")
    async with asking(house.app()) as client:
        await log_in(client, secret)
        house.execute("UPDATE redrive.access_session SET seen_at = seen_at - interval '61 minutes'")
        assert (await client.get(ME)).status_code == 401
        await log_in(client, secret)
        assert (await client.get(ME)).status_code == 200
        house.execute("UPDATE redrive.access_session SET expires_at = now() - interval '1 s'")
        assert (await client.get(ME)).status_code == 401
        await log_in(client, secret)
        house.execute("SELECT redrive.revoke_token_1(id, 'x', 'x') FROM redrive.access_token WHERE name = 'short'")
        assert (await client.get(ME)).status_code == 401
        assert (await client.get(ME, headers=bearer(secret))).status_code == 401


async def test_by_https_cookies_are_of_this_host_and_of_https_alone(house: House) -> None:
    async with asking(house.app(origin=SECURE), origin=SECURE) as client:
        answer = await log_in(client, await house.token(Role.VIEWER))
        assert answer.headers["set-cookie"].startswith("__Host-redrive_session=")
        assert "Secure" in answer.headers["set-cookie"]
        assert "max-age" in answer.headers["strict-transport-security"]


async def test_a_proxy_that_was_named_says_who_asks(house: House) -> None:
    async with asking(house.app(**PROXY)) as client:
        assert (await client.get(ME, headers={"X-Forwarded-User": "anna"})).json()["name"] == "anna"


# Each tries to be somebody: headers, and for the application what is set differently.
AROUND: dict[str, tuple[dict[str, Any] | list[tuple[str, str]], dict[str, Any]]] = {
    "nothing": ({}, {}),
    "empty bearer": ({"Authorization": "Bearer "}, {}),
    "no scheme": ({"Authorization": "{good}"}, {}),
    "basic": ({"Authorization": "Basic {good}"}, {}),
    "two spaces": ({"Authorization": "Bearer  {good}"}, {}),
    "trailing space and more": ({"Authorization": "Bearer {good} x"}, {}),
    "two tokens in one": ({"Authorization": "Bearer {good},{good}"}, {}),
    "two headers": ([("Authorization", "Bearer {good}"), ("Authorization", "Bearer {good}")], {}),
    "upper case": ({"Authorization": "Bearer {GOOD}"}, {}),
    "cut off": ({"Authorization": "Bearer {cut}"}, {}),
    "longer": ({"Authorization": "Bearer {good}a"}, {}),
    "its hash": ({"Authorization": "Bearer {hash}"}, {}),
    "a pattern": ({"Authorization": "Bearer %"}, {}),
    "a statement": ({"Authorization": "Bearer ' OR true --"}, {}),
    "very long": ({"Authorization": "Bearer " + "a" * 5000}, {}),
    "expired": ({"Authorization": "Bearer {expired}"}, {}),
    "revoked": ({"Authorization": "Bearer {revoked}"}, {}),
    "a link for a token": ({"Authorization": "Bearer {link}"}, {}),
    "a token for a session": ({"Cookie": "redrive_session={good}"}, {}),
    "a link for a session": ({"Cookie": "redrive_session={link}"}, {}),
    "an empty session": ({"Cookie": "redrive_session="}, {}),
    "a session that nobody made": ({"Cookie": "redrive_session=AAAA"}, {}),
    "a session under the name for https": ({"Cookie": "__Host-redrive_session={session}"}, {}),
    "a session beside a bad token": ({"Cookie": "redrive_session={session}", "Authorization": "Bearer bad"}, {}),
    "the token in the address": ({"X-Original-URL": "/login", "X-Token": "{good}"}, {}),
    "another address by a header": ({"X-Rewrite-URL": "/livez", "X-Original-URL": "/livez"}, {}),
    "another method by a header": ({"X-HTTP-Method-Override": "OPTIONS"}, {}),
    "a proxy's header from nobody's proxy": ({"X-Forwarded-User": "anna"}, {}),
    "a proxy's header from another address": (
        {"X-Forwarded-User": "anna"},
        {**PROXY, "proxy_peers": frozenset({"192.0.2.8"})},
    ),
    "the proxy's address by a header": (
        {
            "X-Forwarded-User": "anna",
            "X-Forwarded-For": "192.0.2.8",
            "X-Real-IP": "192.0.2.8",
            "Forwarded": "for=192.0.2.8",
        },
        {**PROXY, "proxy_peers": frozenset({"192.0.2.8"})},
    ),
    "somebody the proxy may not name": ({"X-Forwarded-User": "root"}, PROXY),
    "a name with space around": ({"X-Forwarded-User": "ann"}, PROXY),
    "a name in other case": ({"X-Forwarded-User": "Anna"}, PROXY),
    "two names": ([("X-Forwarded-User", "anna"), ("X-Forwarded-User", "anna")], PROXY),
    "two names in one": ({"X-Forwarded-User": "anna, anna"}, PROXY),
    "no name": ({"X-Forwarded-User": ""}, PROXY),
    "another header of proxies": ({"Remote-User": "anna", "X-Remote-User": "anna"}, PROXY),
    "a host of somebody else": ({"Authorization": "Bearer {good}", "Host": "evil.test"}, {}),
    "a host that begins like ours": ({"Authorization": "Bearer {good}", "Host": "console.test.evil.test"}, {}),
    "a host with a user": ({"Authorization": "Bearer {good}", "Host": "console.test@evil.test"}, {}),
}


@pytest.mark.parametrize("way", AROUND, ids=lambda way: way.replace(" ", "-"))
async def test_nobody_gets_around(house: House, way: str) -> None:
    given, doors = AROUND[way]
    good = await house.token(Role.ADMIN)
    words = {
        "good": good,
        "GOOD": good.upper(),
        "cut": good[:-1],
        "hash": hash_of(good).hex(),
        "link": await link_of(house),
        "expired": await house.token(Role.ADMIN, name=f"e {way}"),
        "revoked": await house.token(Role.ADMIN, name=f"r {way}"),
    }
    house.execute("UPDATE redrive.access_token SET expires_at = now() WHERE name = %s", f"e {way}")
    house.execute("SELECT redrive.revoke_token_1(id, 'x', 'x') FROM redrive.access_token WHERE name = %s", f"r {way}")
    async with asking(house.app(**doors)) as client:
        if "{session}" in str(given):
            await log_in(client, good)
            words["session"] = client.cookies["redrive_session"]
            client.cookies.clear()
        pairs = given if isinstance(given, list) else list(given.items())
        headers = [(name, value.format(**words)) for name, value in pairs]
        answer = await client.get(ME, headers=headers)
        assert answer.status_code in {401, 403, 421}, answer.text
        assert "permissions" not in answer.text


PATHS = [
    "/assets/../api/v1/me",
    "/assets/%2e%2e/api/v1/me",
    "/assets/..%2fapi/v1/me",
    "//api/v1/me",
    "/api/v1/me/",
    "/API/V1/ME",
    "/login/../api/v1/me",
    "/login/api/v1/me",
    "/livez/../api/v1/me",
    "/api/v1/me%00",
    "/api/v1/me;/livez",
    "/api/v1/me?x=/livez",
    "/./api/v1/me",
    "/api/v1/../v1/me",
    "/api%2fv1%2fme",
    "/openapi.json",
    "/docs",
    "/api/v1/openapi.json",
]


@pytest.mark.parametrize("path", PATHS)
async def test_no_spelling_of_an_address_is_open(house: House, path: str) -> None:
    async with asking(house.app()) as client:
        request = client.build_request("GET", ORIGIN)
        request.url = request.url.copy_with(raw_path=path.encode())
        answer = await client.send(request)
        assert answer.status_code in {400, 401, 404}, answer.text
        assert "permissions" not in answer.text


async def test_who_tries_often_is_told_to_wait_and_good_tokens_still_work(fresh: House) -> None:
    good = await fresh.token(Role.VIEWER)
    async with asking(fresh.app()) as client:
        answers = [(await log_in(client, f"rdt_wrong{n}")).status_code for n in range(7)]
        assert answers == [401] * 5 + [429] * 2
        assert (await log_in(client, good)).status_code == 429
        assert (await client.get(ME, headers=bearer("rdt_wrong"))).status_code == 429
        assert (await client.get(ME, headers=bearer(good))).status_code == 200


async def test_denials_are_audited_and_cannot_fill_the_audit(fresh: House) -> None:
    viewer = await fresh.token(Role.VIEWER, "acme")
    async with asking(fresh.app(**PROXY)) as client:
        await client.get(ME)  # nobody who tries nothing
        await client.get(ME, headers=bearer("rdt_wrong"))
        await client.get(ME, headers={"X-Forwarded-User": "root"})
        await client.post("/logout", headers={"X-Forwarded-User": "anna", "Origin": "http://evil.test"})
        for _ in range(40):
            await client.get("/api/v1/tokens", headers=bearer(viewer))
    denials = fresh.denials()
    assert denials[:3] == [
        ("unknown", "GET /api/v1/me", "BAD_TOKEN"),
        ("unknown", "GET /api/v1/me", "UNKNOWN_USER"),
        ("anna", "POST /logout", "FORGED_REQUEST"),
    ]
    assert denials[3:] == [("viewer of acme", "GET /api/v1/tokens", "ROLE_TOO_LOW")] * 30


async def test_every_answer_has_its_headers(house: House) -> None:
    async with asking(house.app()) as client:
        for path in ("/login", "/livez", ME, "/nowhere", "/assets/none.css"):
            answer = await client.get(path)
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert "frame-ancestors 'none'" in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert "access-control-allow-origin" not in answer.headers


async def test_below_a_prefix_it_works_whether_the_proxy_cuts_it_off_or_not(house: House) -> None:
    async with asking(house.app(root_path="/ops/redrive")) as client:
        good = bearer(await house.token(Role.VIEWER))
        assert (await client.get(f"/ops/redrive{ME}", headers=good)).status_code == 200
        assert (await client.get(ME, headers=good)).status_code == 200
        assert (await client.get(f"/ops/redrivex{ME}", headers=good)).status_code == 404
        sent = await client.get("/ops/redrive/dead", headers={"Accept": "text/html"})
        assert sent.headers["location"] == "/ops/redrive/login?next=/dead"
        assert 'action="/ops/redrive/login"' in (await client.get("/ops/redrive/login")).text


@pytest.mark.parametrize(
    "wanted", ["//evil.test", "https://evil.test", "/\\evil.test", "\\\\evil.test", "javascript:x", "", "/\n/evil"]
)
async def test_after_the_login_nobody_is_sent_elsewhere(house: House, wanted: str) -> None:
    async with asking(house.app()) as client:
        answer = await log_in(client, await house.token(Role.VIEWER), next=wanted)
        assert (answer.status_code, answer.headers["location"]) == (303, "/")


def test_beyond_this_machine_it_is_closed_unless_somebody_could_log_in() -> None:
    for host in ("127.0.0.1", "::1", "localhost"):
        require_login_method(AuthConfig(), host, has_token=False)
    open_ = AuthConfig(origin=SECURE)
    for host in ("0.0.0.0", "::", "192.0.2.1", "console.test"):
        with pytest.raises(SettingsError, match="without a token or a proxy to log in by"):
            require_login_method(open_, host, has_token=False)
        with pytest.raises(SettingsError, match="its own address"):
            require_login_method(AuthConfig(), host, has_token=True)
        require_login_method(open_, host, has_token=True)
        require_login_method(AuthConfig(origin=SECURE, **PROXY), host, has_token=False)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("console_origin", "ops.example.com"),
        ("console_origin", "https://ops.example.com/redrive"),
        ("console_root_path", "redrive"),
        ("console_root_path", "/a b"),
        ("console_proxy_peers", "10.0.0.0/8"),
        ("console_proxy_header", "Cookie"),
        ("console_proxy_users", "anna"),
        ("console_proxy_users", "anna=root"),
        ("console_proxy_users", "anna=viewer:"),
    ],
)
def test_a_door_that_makes_no_sense_is_refused(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=name):
        AuthConfig.of(Settings(**{name: value}))


def test_users_of_a_proxy_have_a_role_and_perhaps_a_tenant() -> None:
    doors = AuthConfig.of(Settings(console_proxy_users="anna=operator ben@x.org=viewer:acme"))
    assert doors.proxy_users == {
        "anna": Principal("anna", Role.OPERATOR, "*"),
        "ben@x.org": Principal("ben@x.org", Role.VIEWER, "acme"),
    }


async def test_a_route_of_a_system_that_does_not_say_what_it_needs_is_a_mistake_found_at_the_start(
    house: House,
) -> None:
    router = APIRouter()

    @router.get("/open")
    async def forgotten() -> str:
        return "everything"

    with pytest.raises(OperatorError, match="/api/v1/shop/open does not say what it needs"):
        create_app(house.dsn, systems={"shop": System(name="shop", router=lambda: router)})


async def test_a_route_that_says_what_it_needs_is_mounted_below_the_name_of_its_system(house: House) -> None:
    router = APIRouter()

    @router.get("/orders", dependencies=[require(Permission.READ)])
    async def orders(principal: CurrentPrincipal) -> str:
        return principal.tenant

    app = create_app(house.dsn, AuthConfig(origin=ORIGIN), systems={"shop": System(name="shop", router=lambda: router)})
    async with asking(app) as client:
        acme = bearer(await house.token(Role.VIEWER, "acme"))
        assert (await client.get("/api/v1/shop/orders", headers=acme)).json() == "acme"
        assert (await client.get("/api/v1/shop/orders")).status_code == 401


async def test_what_answers_without_having_asked_anything_is_not_let_out(house: House) -> None:
    """Whatever is mounted by whatever means: nothing leaves but what said what it needs."""

    async def everything(_: Request) -> PlainTextResponse:
        return PlainTextResponse("everything")

    app = house.app()
    app.app = Starlette(routes=[Route("/everything", everything)])
    async with asking(app) as client:
        answer = await client.get("/everything", headers=bearer(await house.token(Role.ADMIN)))
    assert answer.status_code >= 400
    assert "everything" not in answer.text
