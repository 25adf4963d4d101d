"""What the desk reads: failure groups, requests, replays, and the chain of operators' acts."""

from collections.abc import AsyncGenerator, Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from redrive.message import MessageId
from redrive.store.reads import models
from redrive.store.reads.messages import END_OF_IDS, END_OF_TIME
from redrive.store.reads.models import (
    ChainLink,
    GroupFilter,
    GroupPosition,
    GroupStatus,
    GroupView,
    Page,
    ProposedEdit,
    ReplayItem,
    ReplayView,
    RequestView,
)
from redrive.store.reads.transaction import Row, check_limit, message_snapshot, moment_of, read, snapshot
from redrive.store.runtime.postgres import PostgresStore

CHAIN_WINDOW: Final = 5000  # links that are read at once
_END_OF_FINGERPRINTS: Final = b"\xff" * 17


async def list_groups(
    store: PostgresStore, wanted: GroupFilter, *, now: datetime | None = None
) -> Page[GroupView, GroupPosition]:
    check_limit(wanted.limit)
    before = wanted.before or GroupPosition(END_OF_TIME, _END_OF_FINGERPRINTS)
    async with message_snapshot(store) as ask:
        at = now or await moment_of(ask)
        rows = await ask(
            "groups",
            statuses=None if wanted.statuses is None else [status.value for status in wanted.statuses],
            destination=wanted.destination,
            prefix=wanted.prefix,
            before_at=before.last_seen_at,
            before=before.fingerprint,
            limit=wanted.limit,
            most=models.GROUP_WAITING_MAX,
            now=at,
        )
    groups = [_group(row) for row in rows]
    return Page.of(
        groups, at, limit=wanted.limit, position=lambda one: GroupPosition(one.last_seen_at, one.fingerprint)
    )


def _group(row: Row) -> GroupView:
    fingerprint: bytes = row.pop("fingerprint")
    return GroupView(**{**row, "status": GroupStatus(row["status"])}, id=fingerprint.hex())


async def audit_chain(store: PostgresStore) -> AsyncGenerator[ChainLink, None]:
    """Every act in one snapshot, the first one first."""
    after = -(2**62)  # a row that was put before the first one must not be passed over
    async with snapshot(store) as ask:
        while rows := await ask("audit_chain", after=after, limit=CHAIN_WINDOW):
            for row in rows:
                yield ChainLink(**row)
            after = rows[-1]["id"]


async def latest_requests(store: PostgresStore, ids: Sequence[MessageId]) -> dict[MessageId, RequestView]:
    """The latest request about each message."""
    return {row["message_id"]: RequestView(**row) for row in await read(store, "requests", ids=list(ids))}


async def proposed_edit(store: PostgresStore, id: MessageId) -> ProposedEdit | None:
    """The payload that one person proposed and a second has to approve."""
    rows = await read(store, "proposed_edit", subject=str(id))
    if not rows:
        return None
    options = rows[0].pop("options") or {}
    return ProposedEdit(**rows[0], paths=options.get("paths") or [])


async def list_replays(
    store: PostgresStore,
    *,
    id: UUID | None = None,
    name: str | None = None,
    finished: bool = True,
    before: UUID | None = None,
    limit: int = 20,
) -> Page[ReplayView, UUID]:
    """finished: also those with nothing left to do."""
    check_limit(limit)
    async with message_snapshot(store) as ask:
        at = await moment_of(ask)
        rows = await ask("replays", id=id, name=name, finished=finished, before=before or END_OF_IDS, limit=limit)
    replays = [ReplayView(**{key: row[key] for key in row if key != "replay_id"}) for row in rows]
    return Page.of(replays, at, limit=limit, position=lambda replay: replay.id)


async def list_items(
    store: PostgresStore, replay: UUID, *, outcome: str | None = None, after: int = 0, limit: int = 50
) -> Page[ReplayItem, int]:
    check_limit(limit)
    async with message_snapshot(store) as ask:
        at = await moment_of(ask)
        rows = await ask("replay_items", replay=replay, outcome=outcome, after=after, limit=limit)
    return Page.of([ReplayItem(**row) for row in rows], at, limit=limit, position=lambda item: item.position)
