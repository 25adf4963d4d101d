"""Authenticates a request by token, by a trusted proxy's header, or by session cookie.

A wrong token is refused even if a good cookie comes with it. A proxy's header counts only from a configured address.
The tenant comes from the credential, never from the request. SQL: verbs/access.sql.
"""

import logging
import time
from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import ip_address
from typing import Final

from starlette.requests import HTTPConnection

from redrive.operate.sanitize import one_line
from redrive.operate.web.auth_config import AuthConfig
from redrive.operate.web.principal import Principal, Role
from redrive.operate.web.problems import Refusal
from redrive.operate.web.rate_limit import RateLimit
from redrive.operate.web.secrets import LENGTH_MAX, hash_of, new_secret
from redrive.operate.web.tokens import console_store
from redrive.store.runtime import access
from redrive.store.runtime.access import Bearer
from redrive.store.runtime.postgres import PostgresStore

LOGINS_PER_MINUTE: Final = 5  # failed ones, from one address
DENIALS_PER_MINUTE: Final = 30  # kept in the audit, of one user or address
SUBJECT_MAX: Final = 200

_log = logging.getLogger("redrive.console")


class CredentialKind(StrEnum):
    """Browsers and proxies add a session or a proxy header by themselves; a token is sent on purpose."""

    TOKEN = "token"  # noqa: S105 - a word
    PROXY = "proxy"
    SESSION = "session"


@dataclass(frozen=True, slots=True)
class Visitor:
    """principal: None if the request has no credential."""

    principal: Principal | None
    credential: CredentialKind | None = None
    session: str | None = None

    @property
    def ambient(self) -> bool:
        """Sent automatically by browsers, so CSRF applies."""
        return self.credential is not CredentialKind.TOKEN


@dataclass
class Authenticator:
    """It reads the database in the console's role."""

    store: PostgresStore
    auth: AuthConfig
    dsn: str = field(repr=False)
    failed: RateLimit = field(default_factory=lambda: RateLimit(LOGINS_PER_MINUTE, time.monotonic))
    denials: RateLimit = field(default_factory=lambda: RateLimit(DENIALS_PER_MINUTE, time.monotonic))

    def __post_init__(self) -> None:
        self.console_store = console_store(self.store)

    async def visitor(self, request: HTTPConnection) -> Visitor:
        given = request.headers.getlist("authorization")
        if given:
            return Visitor(await self._by_token(request, given), CredentialKind.TOKEN)
        if peer_of(request) in self.auth.proxy_peers and (names := request.headers.getlist(self.auth.proxy_header)):
            return Visitor(self._by_proxy(names), CredentialKind.PROXY)
        session = request.cookies.get(session_cookie(self.auth), "")
        if 0 < len(session) <= LENGTH_MAX:
            found = await access.find_session(self.console_store, hash_of(session), idle_seconds=self.auth.idle_seconds)
            if found is not None:
                return Visitor(_principal(found), CredentialKind.SESSION, session)
        return Visitor(None)

    async def log_in(self, request: HTTPConnection, secret: str) -> str | None:
        """The new session's secret; None for an invalid token or link. Refusal after too many failures."""
        peer = peer_of(request)
        if self.failed.exhausted(peer):
            raise _too_often()
        session, seconds = new_secret(), self.auth.session_seconds
        if len(secret) <= LENGTH_MAX and await access.log_in(
            self.console_store, hash_of(secret), hash_of(session), valid_seconds=seconds, peer=peer
        ):
            return session
        self.failed.count(peer)
        return None

    async def log_out(self, session: str) -> None:
        await access.log_out(self.console_store, hash_of(session))

    async def denied(self, request: HTTPConnection, refusal: Refusal, principal: Principal | None) -> None:
        """Writes a refused request into the audit, at a bounded rate so that it cannot be flooded."""
        who = principal.name if principal else "unknown"
        if not self.denials.count(f"{who}@{peer_of(request)}"):
            return
        method, path = request.scope.get("method", "GET"), request.scope["path"]
        detail = {"peer": peer_of(request), "code": refusal.code}
        if principal:
            detail |= {"role": principal.role, "tenant": principal.tenant}
        try:
            await access.note_access(
                self.console_store,
                actor=who,
                act="access_denied",
                subject=one_line(f"{method} {path}", limit=SUBJECT_MAX),
                reason=one_line(refusal.detail, limit=SUBJECT_MAX),
                detail=detail,
            )
        except Exception as error:
            # The request is refused in any case.
            _log.warning("a denial could not be kept in the audit (%s)", type(error).__qualname__)

    async def _by_token(self, request: HTTPConnection, given: list[str]) -> Principal:
        scheme, _, secret = given[0].partition(" ")
        found = None
        if len(given) == 1 and scheme.lower() == "bearer" and 0 < len(secret) <= LENGTH_MAX:
            found = await access.find_token(self.console_store, hash_of(secret))
        if found is not None:
            return _principal(found)
        if not self.failed.count(peer_of(request)):
            raise _too_often()
        raise Refusal(
            401,
            "BAD_TOKEN",
            "This token is not good: unknown, revoked or expired.",
            denied=True,
            headers={"WWW-Authenticate": "Bearer"},
        )

    def _by_proxy(self, names: list[str]) -> Principal:
        found = self.auth.proxy_users.get(names[0]) if len(names) == 1 else None
        if found is None:
            raise Refusal(
                403, "UNKNOWN_USER", "The user that the proxy names is not in console_proxy_users.", denied=True
            )
        return found


def session_cookie(auth: AuthConfig) -> str:
    """With the prefix `__Host-` a browser accepts it from this host over https only."""
    return "__Host-redrive_session" if auth.secure else "redrive_session"


def peer_of(request: HTTPConnection) -> str:
    """Of the TCP connection: forwarding headers are ignored."""
    client = request.scope.get("client")
    try:
        address = ip_address(client[0]) if client else None
    except ValueError:
        return "unknown"
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address or "unknown")


def _principal(found: Bearer) -> Principal:
    return Principal(found.name, Role(found.role), found.tenant)


def _too_often() -> Refusal:
    return Refusal(
        429, "TOO_OFTEN", "Too many attempts failed; wait a minute.", headers={"Retry-After": "60"}, denied=False
    )
