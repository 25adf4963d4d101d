"""Who asks: by a token, by what a trusted proxy says, or by a session. A request becomes a principal here only.

A token that is presented and wrong is refused and never passed over for a cookie; a proxy's header counts only from an
address that was named; a tenant comes from what was found, never from the request. SQL: verbs/access.sql.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import ip_address
from typing import Final

from starlette.requests import HTTPConnection

from redrive.operate.sanitize import one_line
from redrive.operate.web.auth_config import Doors
from redrive.operate.web.principal import Principal, Role
from redrive.operate.web.problems import Refusal
from redrive.operate.web.rate_limit import Attempts
from redrive.operate.web.secrets import LENGTH_MAX, hash_of, new_secret
from redrive.operate.web.tokens import console_store
from redrive.store.runtime import access
from redrive.store.runtime.access import Bearer
from redrive.store.runtime.postgres import PostgresStore

LOGINS_PER_MINUTE: Final = 5  # that failed, from one address
DENIALS_PER_MINUTE: Final = 30  # that are kept in the audit, of one person or address
SUBJECT_MAX: Final = 200

_log = logging.getLogger("redrive.console")


class CredentialKind(StrEnum):
    """By which door. A browser sends cookies, and a proxy adds its header, whoever made the page that asks."""

    TOKEN = "token"  # noqa: S105 - a word
    PROXY = "proxy"
    SESSION = "session"


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who asks and how they came. principal: None for somebody unknown."""

    principal: Principal | None
    came: CredentialKind | None = None
    session: str | None = None

    @property
    def ambient(self) -> bool:
        """Whether a browser would say the same for a page of somebody else."""
        return self.came is not CredentialKind.TOKEN


@dataclass
class People:
    """store: the whole database; what is done here is done in the role that may."""

    store: PostgresStore
    doors: Doors
    dsn: str = field(repr=False)
    failed: Attempts = field(default_factory=lambda: Attempts(LOGINS_PER_MINUTE, time.monotonic))
    denials: Attempts = field(default_factory=lambda: Attempts(DENIALS_PER_MINUTE, time.monotonic))

    def __post_init__(self) -> None:
        self.desk = console_store(self.store)

    async def visitor(self, request: HTTPConnection) -> Visitor:
        """Who this is. Refusal for somebody who presents what is not good."""
        given = request.headers.getlist("authorization")
        if given:
            return Visitor(await self._by_token(request, given), CredentialKind.TOKEN)
        if peer_of(request) in self.doors.proxy_peers and (names := request.headers.getlist(self.doors.proxy_header)):
            return Visitor(self._by_proxy(names), CredentialKind.PROXY)
        session = request.cookies.get(session_cookie(self.doors), "")
        if 0 < len(session) <= LENGTH_MAX:
            found = await access.find_session(self.desk, hash_of(session), idle_seconds=self.doors.idle_seconds)
            if found is not None:
                return Visitor(_principal(found), CredentialKind.SESSION, session)
        return Visitor(None)

    async def log_in(self, request: HTTPConnection, secret: str) -> str | None:
        """The new session's secret; None for a token or link that is not good. Refusal for who tries too often."""
        peer = peer_of(request)
        if self.failed.exhausted(peer):
            raise _too_often()
        session = new_secret()
        found = None
        if len(secret) <= LENGTH_MAX:
            found = await access.log_in(
                self.desk, hash_of(secret), hash_of(session), valid_seconds=self.doors.session_seconds, peer=peer
            )
        if found is None:
            self.failed.count(peer)
        return session if found else None

    async def log_out(self, session: str) -> None:
        await access.log_out(self.desk, hash_of(session))

    async def denied(self, request: HTTPConnection, refusal: Refusal, principal: Principal | None) -> None:
        """Into the audit, and so many of one person or address that nobody can fill it."""
        who = principal.name if principal else "unknown"
        if not self.denials.count(f"{who}@{peer_of(request)}"):
            return
        method, path = request.scope.get("method", "GET"), request.scope["path"]
        detail = {"peer": peer_of(request), "code": refusal.code}
        if principal:
            detail |= {"role": principal.role, "tenant": principal.tenant}
        try:
            await access.note_access(
                self.desk,
                actor=who,
                act="access_denied",
                subject=one_line(f"{method} {path}", limit=SUBJECT_MAX),
                reason=one_line(refusal.detail, limit=SUBJECT_MAX),
                detail=detail,
            )
        except Exception as error:
            # It is refused all the same.
            _log.warning("a denial could not be kept in the audit (%s)", type(error).__qualname__)

    async def _by_token(self, request: HTTPConnection, given: list[str]) -> Principal:
        scheme, _, secret = given[0].partition(" ")
        found = None
        if len(given) == 1 and scheme.lower() == "bearer" and 0 < len(secret) <= LENGTH_MAX:
            found = await access.find_token(self.desk, hash_of(secret))
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
        found = self.doors.proxy_users.get(names[0]) if len(names) == 1 else None
        if found is None:
            raise Refusal(403, "UNKNOWN_USER", "Whom the proxy names is nobody here.", denied=True)
        return found


def session_cookie(doors: Doors) -> str:
    """With the prefix a browser takes it from this very host by https only."""
    return "__Host-redrive_session" if doors.secure else "redrive_session"


def peer_of(request: HTTPConnection) -> str:
    """The address of whoever speaks to us directly; what they say of others counts for nothing."""
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
