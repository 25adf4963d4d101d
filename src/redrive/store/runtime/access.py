"""Tokens, sessions and answered requests of HTTP callers, for `redrive.operate.web`. SQL: verbs/access.sql.

A secret never gets here, only its hash.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from redrive.errors import NotFound
from redrive.ports import Now
from redrive.store.runtime import wire
from redrive.store.runtime.postgres import PostgresStore
from redrive.who import require_actor_and_reason


class Bearer(NamedTuple):
    """The owner of a token or session. role: viewer, operator, approver or admin. tenant: '*' = all."""

    name: str
    role: str
    tenant: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenView:
    """A token as administrators see it. used_at: about when it was last used; None = never."""

    id: UUID
    name: str
    role: str
    tenant: str
    created_at: datetime
    created_by: str
    expires_at: datetime
    used_at: datetime | None
    revoked_at: datetime | None


class Begun(NamedTuple):
    """result: new, answered (with status and answer), in_flight or other."""

    result: str
    status: int | None
    answer: bytes | None


async def create_token(
    store: PostgresStore,
    bearer: Bearer,
    secret_hash: bytes,
    *,
    kind: str,
    valid_seconds: float,
    actor: str,
    reason: str,
    now: Now = None,
) -> UUID:
    require_actor_and_reason(actor, reason)
    values = (kind, *bearer, secret_hash, valid_seconds, actor, reason, now)
    id_: UUID = await store.value("create_token_1", *values)
    return id_


async def revoke_token(store: PostgresStore, id: UUID, *, actor: str, reason: str, now: Now = None) -> bool:
    """Whether it was good until now."""
    require_actor_and_reason(actor, reason)
    answer = await store.value("revoke_token_1", id, actor, reason, now)
    if answer == "not_found":
        raise NotFound(f"There is no token {id}.", next="redrive tokens list")
    return bool(answer == "done")


async def list_tokens(store: PostgresStore, *, before: UUID | None = None, limit: int = 50) -> list[TokenView]:
    """Latest first."""
    return wire.objects(TokenView, await store.call("list_tokens_1", before, limit))


async def has_token(store: PostgresStore, *, now: Now = None) -> bool:
    return bool(await store.value("has_token_1", now))


async def find_token(store: PostgresStore, secret_hash: bytes, *, now: Now = None) -> Bearer | None:
    return _bearer(await store.call("find_token_1", secret_hash, now))


async def log_in(
    store: PostgresStore, secret_hash: bytes, session_hash: bytes, *, valid_seconds: float, peer: str, now: Now = None
) -> Bearer | None:
    return _bearer(await store.call("log_in_1", secret_hash, session_hash, valid_seconds, peer, now))


async def find_session(
    store: PostgresStore, session_hash: bytes, *, idle_seconds: float, now: Now = None
) -> Bearer | None:
    return _bearer(await store.call("find_session_1", session_hash, idle_seconds, now))


async def log_out(store: PostgresStore, session_hash: bytes) -> bool:
    return bool(await store.value("log_out_1", session_hash))


async def note_access(
    store: PostgresStore, *, actor: str, act: str, subject: str, reason: str, detail: Mapping[str, Any], now: Now = None
) -> None:
    """Into the audit. act: access_denied or read_payload."""
    await store.value("note_access_1", actor, act, subject, reason, json.dumps(dict(detail)), now)


async def begin_request(
    store: PostgresStore,
    actor: str,
    key_hash: bytes,
    fingerprint: bytes,
    *,
    stale_seconds: float,
    keep_seconds: float,
    now: Now = None,
) -> Begun:
    rows = await store.call("begin_request_1", actor, key_hash, fingerprint, stale_seconds, keep_seconds, now)
    return wire.objects(Begun, rows)[0]


async def end_request(
    store: PostgresStore, actor: str, key_hash: bytes, *, status: int | None, answer: bytes | None
) -> None:
    """status None: nothing was done, and the key is free again."""
    await store.value("end_request_1", actor, key_hash, status, answer)


def _bearer(rows: Sequence[Any]) -> Bearer | None:
    return next(iter(wire.objects(Bearer, rows)), None)
