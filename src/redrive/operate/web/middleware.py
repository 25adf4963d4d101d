"""The middleware before every route: prefix, Host, authentication, bounds of the body, CSRF. It adds security headers.

Routes are closed unless they are listed here as open. The permission of a route is declared there (`require`).
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from redrive.errors import NotAllowed
from redrive.operate.web import csrf
from redrive.operate.web.authentication import Authenticator, Visitor
from redrive.operate.web.idempotency import Once
from redrive.operate.web.problems import CONTENT_TYPE, Refusal, not_logged_in, refusal_of

BODY_BYTES_MAX: Final = 256 * 1024
DEPTH_MAX: Final = 64
URL_BYTES_MAX: Final = 8 * 1024
OPEN_PATHS: Final = frozenset({"/login", "/livez", "/robots.txt"})
OPEN_PREFIX: Final = "/assets/"
API_PREFIX: Final = "/api/"
CHECKED: Final = "redrive.checked"  # key in the scope: the permissions that were checked
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_HEADERS: Final = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",  # with `no-referrer` a form's Origin would be `null`
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "x-robots-tag": "noindex, nofollow",
}
_UNSENDABLE: Final = re.compile("[\x00\ud800-\udfff]")

_log = logging.getLogger("redrive.console")


@dataclass(eq=False)
class Guard:
    """error_page: renders a refusal for a browser; None: problem+json for all. streamed: paths whose POST reads its
    body itself, bounds it, and is idempotent by itself.
    """

    app: ASGIApp
    authenticator: Authenticator
    error_page: Any = None
    streamed: frozenset[str] = frozenset()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            scope = self._below_prefix(scope)
            await self._answer(scope, receive, _Sender(scope, send, self.authenticator))
        # A websocket is not accepted, so the server closes it.

    async def _answer(self, scope: Scope, receive: Receive, send: _Sender) -> None:
        scope["redrive.authenticator"], scope["redrive.visitor"], scope[CHECKED] = self.authenticator, Visitor(None), []
        request = Request(scope, receive)
        try:
            body = await self._admitted(request)
            if body is None:
                await self.app(scope, receive, send)
            else:
                await self._route(request, body)(scope, _replayed(body, receive), send)
        except Refusal as refusal:
            await self._refuse(request, refusal, send)
        except Exception as error:
            _log.error("%s %s failed (%s)", request.method, _route(scope), type(error).__qualname__, exc_info=error)
            if not send.started:
                await self._refuse(request, refusal_of(error, self.authenticator.dsn), send)

    def _route(self, request: Request, body: bytes) -> ASGIApp:
        principal = request.scope["redrive.visitor"].principal
        changes = request.method not in _SAFE and route_path(request.scope).startswith(API_PREFIX)
        return Once(self.app, self.authenticator.console_store, principal, body) if changes and principal else self.app

    def _below_prefix(self, scope: Scope) -> Scope:
        """Works whether or not the proxy strips the prefix."""
        prefix = self.authenticator.auth.root_path
        if not prefix or scope.get("root_path"):
            return scope
        path: str = scope["path"]
        below = path if path == prefix or path.startswith(f"{prefix}/") else prefix + path
        return {**scope, "root_path": prefix, "path": below}

    async def _admitted(self, request: Request) -> bytes | None:
        """The body; None: the route reads it."""
        self._check_address(request)
        visitor = await self.authenticator.visitor(request)
        request.scope["redrive.visitor"] = visitor
        if visitor.principal is None and not is_open(route_path(request.scope)):
            raise not_logged_in()
        is_streamed = request.method == "POST" and route_path(request.scope) in self.streamed
        body = None if is_streamed else await _whole_body(request)
        if request.method not in _SAFE and visitor.ambient:
            csrf.check(request, body or b"", self.authenticator.auth)
        return body

    def _check_address(self, request: Request) -> None:
        hosts = request.headers.getlist("host")
        if len(hosts) != 1 or not self.authenticator.auth.knows_host(hosts[0]):
            raise Refusal(421, "UNKNOWN_HOST", "This is not a name of the console; console_origin says which is.")
        query: bytes = request.scope.get("query_string", b"")
        if len(request.scope.get("raw_path") or b"") + len(query) > URL_BYTES_MAX:
            raise Refusal(414, "TOO_LONG", f"The address is longer than {URL_BYTES_MAX} bytes.")
        if _UNSENDABLE.search(request.scope["path"]) or "\ufffd" in request.scope["path"] or b"%00" in query:
            raise Refusal(400, "BAD_ADDRESS", "The address has characters that no name here has.")

    async def _refuse(self, request: Request, refusal: Refusal, send: _Sender) -> None:
        response = await refused_response(request, refusal, self.error_page)
        await response(request.scope, request.receive, send)


async def refused_response(request: Request, refusal: Refusal, error_page: Any = None) -> Response:
    """A page or a redirect to the login for browsers, a problem for programs. The audit keeps what was denied."""
    if refusal.denied:
        scope = request.scope
        await scope["redrive.authenticator"].denied(request, refusal, scope["redrive.visitor"].principal)
    if wants_page(request):
        if refusal.status == 401 and request.method in _SAFE:
            request.scope[CHECKED].append("the way to the login")
            return RedirectResponse(_login(request), status_code=303)
        if error_page is not None:
            page: Response = error_page(request, refusal.status, refusal.problem())
            page.headers.update(refusal.headers)
            return page
    return JSONResponse(refusal.problem(), status_code=refusal.status, headers=refusal.headers, media_type=CONTENT_TYPE)


def wants_page(request: Request) -> bool:
    if route_path(request.scope).startswith(API_PREFIX):
        return False
    return "text/html" in request.headers.get("accept", "")


def route_path(scope: Scope) -> str:
    root, path = scope.get("root_path", ""), str(scope["path"])
    return path.removeprefix(root) if root and (path == root or path.startswith(f"{root}/")) else path


def is_open(path: str) -> bool:
    return path in OPEN_PATHS or path.startswith(OPEN_PREFIX)


def _login(request: Request) -> str:
    here = route_path(request.scope) or "/"
    query = request.scope.get("query_string", b"").decode("latin-1")
    wanted = quote(f"{here}?{query}" if query else here, safe="/")
    return f"{request.scope.get('root_path', '')}/login?next={wanted}"


def _route(scope: Scope) -> str:
    return getattr(scope.get("route"), "path", "a request")


async def _whole_body(request: Request) -> bytes:
    """Refusal for a body that is too large, too deep, or has characters that PostgreSQL cannot store."""
    if request.method in _SAFE:
        return b""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > BODY_BYTES_MAX:
            raise Refusal(413, "TOO_LARGE", f"The body has more than {BODY_BYTES_MAX} bytes.")
        parts.append(part)
    body = b"".join(parts)
    if "json" in request.headers.get("content-type", ""):
        _check_json(body)
    return body


def _check_json(body: bytes) -> None:
    if _depth(body) > DEPTH_MAX:
        raise Refusal(400, "TOO_DEEP", f"The body is nested deeper than {DEPTH_MAX}.")
    try:
        text = json.dumps(json.loads(body or b"null"), ensure_ascii=False)
    except (ValueError, RecursionError):
        raise Refusal(400, "BAD_JSON", "The body is no JSON.") from None
    if "\\u0000" in text or _UNSENDABLE.search(text):
        raise Refusal(400, "BAD_TEXT", "The body has a character that cannot be kept: NUL, or half of a pair.")


def _depth(body: bytes) -> int:
    deepest = depth = 0
    for sign in re.sub(rb'"(?:[^"\\]|\\.)*+"', b"", body):
        if sign in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif sign in b"]}":
            depth -= 1
    return deepest


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Gives the body again, then what the server receives: a disconnect."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


class _Sender:
    """Adds the security headers to every answer, and the CSRF cookie where a page needs it."""

    def __init__(self, scope: Scope, send: Send, authenticator: Authenticator) -> None:
        self._scope, self._send, self._auth = scope, send, authenticator.auth
        self.started = False

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            if message["status"] < 400 and not self._scope[CHECKED] and not is_open(route_path(self._scope)):
                raise NotAllowed("A route has answered that did not say what it needs.")
            self.started = True
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers[name] = value
            if not route_path(self._scope).startswith(OPEN_PREFIX):
                headers["cache-control"] = "no-store"
            if self._auth.secure:
                headers["strict-transport-security"] = "max-age=31536000"
            if (secret := self._scope.get(csrf.NEW_SECRET)) is not None:
                cookie = Response()
                name, secure = csrf.forgery_cookie(self._auth), self._auth.secure
                cookie.set_cookie(name, secret, secure=secure, httponly=True, samesite="strict")
                headers.append("set-cookie", cookie.headers["set-cookie"])
        await self._send(message)
