"""A repeated change is made once: `Idempotency-Key` of the API, and the token of a console's form.

Both are kept in the database. The first answer is kept for a day and repeated word for word. The same key with another
request is refused, and so is one whose first request still runs. A denied or failed request frees its key.
SQL: verbs/access.sql.
"""

import hashlib
import re
from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from redrive.operate.web.principal import Principal
from redrive.operate.web.problems import CONTENT_TYPE, Refusal
from redrive.store.runtime import access
from redrive.store.runtime.access import Begun
from redrive.store.runtime.postgres import PostgresStore

HEADER: Final = "idempotency-key"
INSTEAD: Final = "redrive.kept_instead"  # in the scope: what is kept of an answer that holds a secret
KEPT_SECONDS: Final = 24 * 3600.0
STALE_SECONDS: Final = 60.0
ANSWER_BYTES_MAX: Final = 1024 * 1024
KEPT_STATUSES: Final = frozenset({200, 201, 404, 409, 422})
_KEY: Final = re.compile(r"[\x21-\x7e]{1,255}")


def key_of(request: Request) -> str:
    given = request.headers.getlist(HEADER)
    if not given:
        raise Refusal(400, "IDEMPOTENCY_KEY_MISSING", "A change needs the header Idempotency-Key, new for each one.")
    if len(given) > 1 or not _KEY.fullmatch(given[0]):
        raise Refusal(400, "IDEMPOTENCY_KEY_BAD", "Idempotency-Key has 1 to 255 visible ASCII characters.")
    return given[0]


def key_hash(principal: Principal, key: str) -> bytes:
    """Keys of two tenants or two roles never collide."""
    return digest(principal.tenant, principal.role, key)


def keep_instead(request: Request, answer: bytes) -> None:
    """Keeps this for a repeated request, because the answer itself holds a secret."""
    request.scope[INSTEAD]["answer"] = answer


@dataclass(frozen=True)
class RequestKey:
    """One key of one person, in the database: the request that it belongs to is answered once, by any process."""

    store: PostgresStore
    principal: Principal
    key: str
    fingerprint: bytes
    stale_seconds: float

    async def begin(self) -> Begun:
        return await access.begin_request(
            *self._place, self.fingerprint, stale_seconds=self.stale_seconds, keep_seconds=KEPT_SECONDS
        )

    async def end(self, *, status: int | None, answer: bytes | None) -> None:
        """status None: nothing was done, and the key is free again."""
        await access.end_request(*self._place, status=status, answer=answer)

    @property
    def _place(self) -> tuple[PostgresStore, str, bytes]:
        return self.store, self.principal.name, key_hash(self.principal, self.key)


@dataclass(frozen=True)
class Once:
    app: ASGIApp
    store: PostgresStore
    principal: Principal
    body: bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        key = RequestKey(self.store, self.principal, key_of(request), self._fingerprint(request), STALE_SECONDS)
        said = await key.begin()
        if said.result == "new":
            await self._first(scope, receive, send, key)
        else:
            scope["redrive.checked"].append("answered before")
            await _again(said)(scope, receive, send)

    async def _first(self, scope: Scope, receive: Receive, send: Send, key: RequestKey) -> None:
        heard = _Heard(send)
        instead = scope[INSTEAD] = {}
        try:
            await self.app(scope, receive, heard)
        finally:
            keep = heard.whole and heard.status in KEPT_STATUSES
            answer = instead.get("answer", bytes(heard.body)) if keep else None
            await key.end(status=heard.status if keep else None, answer=answer)

    def _fingerprint(self, request: Request) -> bytes:
        query = request.scope.get("query_string", b"").decode("latin-1")
        body = hashlib.sha256(self.body).hexdigest()
        return digest(request.method, request.scope["path"], query, body)


class _Heard:
    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 0
        self.body = bytearray()
        self.whole = False

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        await self._send(message)
        if message["type"] == "http.response.start":
            self.status = message["status"]
        elif message["type"] == "http.response.body":
            self.body += message.get("body", b"")
            self.whole = not message.get("more_body", False) and len(self.body) <= ANSWER_BYTES_MAX


def _again(said: Begun) -> Response:
    if said.result == "other":
        raise Refusal(422, "IDEMPOTENCY_KEY_REUSED", "This Idempotency-Key was used for something else.")
    if said.result == "in_flight" or said.status is None:
        detail = "The first request with this Idempotency-Key is still under way."
        raise Refusal(409, "IN_FLIGHT", detail, headers={"Retry-After": "1"})
    kind = "application/json" if said.status < 400 else CONTENT_TYPE
    return Response(said.answer, said.status, {"Idempotent-Replayed": "true"}, media_type=kind)


def digest(*parts: str) -> bytes:
    return hashlib.sha256("".join(f"{len(part)}:{part}" for part in parts).encode()).digest()
