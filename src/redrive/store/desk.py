"""The desk's verbs in PostgreSQL: what people say of failure groups.

A verb is one function call, as in `postgres`; beside it, because no relay needs these. What a verb promises and locks
is said in `sql/verbs/`. Called by `redrive.operate.desk`.
"""

from __future__ import annotations

from datetime import datetime

from redrive.errors import NotFound
from redrive.store.postgres import PostgresStore, require_actor_and_reason


async def mark_group(
    store: PostgresStore,
    fingerprint: bytes,
    act: str,
    *,
    actor: str,
    reason: str,
    value: str | None = None,
    until: datetime | None = None,
    now: datetime | None = None,
) -> None:
    """resolve, reopen, snooze (until), ignore, assign (value: the owner) or note (value)."""
    require_actor_and_reason(actor, reason)
    values = [fingerprint, act, actor, reason, value, until, now]
    rows = await store.rows("SELECT redrive.mark_group_1(%s, %s, %s, %s, %s, %s, %s)", values)
    if rows[0][0] == "not_found":
        raise NotFound(f"There is no failure group {fingerprint.hex()}.", next="redrive groups list --all")
