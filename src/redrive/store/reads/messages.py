"""Reads messages, parked records, destinations and the audit.

Each call is one snapshot of `sql/reads/<name>.sql`. Lists are keyset pages, newest first; no read costs more when more
messages are closed. Only `show_message(payload=True)` reads a payload.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple
from uuid import UUID

from redrive.errors import InvalidValue, NotAllowed, NotFound
from redrive.message import Closed, HistoryEntry, MessageId, ParkReason, Priority, State
from redrive.store.reads import keys, models
from redrive.store.reads.models import MessageFilter, MessageView, Page, ParkedFilter, ParkedPosition, ParkedRecord
from redrive.store.reads.transaction import (
    ReadTransaction,
    Row,
    check_limit,
    message_snapshot,
    moment_of,
    read,
    snapshot,
)
from redrive.store.runtime.postgres import PostgresStore

END_OF_IDS: Final = MessageId(UUID(int=2**128 - 1))
END_OF_AUDIT: Final = 2**62
END_OF_TIME: Final = datetime(9999, 12, 31, tzinfo=UTC)
PRIORITIES: Final = {priority.level: priority.value for priority in Priority}
STATES: Final = (*(s.value for s in State), *(r.value for r in ParkReason), *(c.value for c in Closed))


class Source(NamedTuple):
    """Where the messages of a state are. values: what the statement for candidates takes besides."""

    candidates: str
    table: str
    values: Mapping[str, str | None]


async def list_messages(store: PostgresStore, wanted: MessageFilter) -> Page[MessageView, MessageId]:
    check_limit(wanted.limit)
    source = _source(wanted.state)
    async with message_snapshot(store) as ask:
        at = await moment_of(ask)
        if wanted.key is not None:
            return Page(await _with_key(ask, wanted), at)
        values = _search(wanted)
        await ask.by_index()
        ids = [row["id"] for row in await ask(source.candidates, **values, **source.values)]
        rows = await _views(ask, ids)
        if len(ids) == wanted.limit:
            return Page(rows, at, next=ids[-1])
        ends = await ask(f"window_end_{source.table}", before=values["before"], window=values["window"])
        if not ends:
            return Page(rows, at)
        return Page(rows, at, next=ends[0]["id"], looked_at=models.SEARCH_WINDOW)


async def find_messages(store: PostgresStore, ids: Sequence[MessageId]) -> dict[MessageId, MessageView]:
    """Those of the ids that exist."""
    check_limit(len(ids) or 1)
    async with message_snapshot(store) as ask:
        return {view.id: view for view in await _views(ask, ids)}


async def show_message(store: PostgresStore, message_id: MessageId, *, payload: bool = False) -> models.MessageDetails:
    """One message with its whole life. NotFound; NotAllowed for a payload that the login may not read."""
    async with message_snapshot(store) as ask:
        views = await _views(ask, [message_id])
        if not views:
            raise NotFound.message_of(message_id)
        may = (await ask("may_read"))[0]
        if payload and not may["payload"]:
            raise NotAllowed("This login may not read payloads.", next=_PAYLOAD_ADVICE)
        return await _details(ask, views[0], may, payload=payload)


_PAYLOAD_ADVICE: Final = "leave --payload out, or use a login with SELECT on redrive.message and redrive.body"


async def _details(ask: ReadTransaction, view: MessageView, may: Row, *, payload: bool) -> models.MessageDetails:
    one, limit = {"id": view.id}, {"limit": models.TIMELINE_MAX}
    version = {"version": view.version}
    if may["payload"]:
        for row in await ask("payload_size", **one, **version):  # none where its row is gone
            view = replace(view, **row)
    acts = await ask("audit", subject=str(view.id), before=END_OF_AUDIT, **limit) if may["audit"] else None
    parked = await ask("parked_one", **one)
    details = (await ask("details", **one))[0]
    return models.MessageDetails(
        view=view,
        timeline=[HistoryEntry(**row) for row in await ask("timeline", **one, **limit)],
        late_answers=[models.LateAnswer(**row) for row in await ask("late_answers", **one, **limit)],
        evidence=[proof for proof in (await proofs_of(ask, [view.id])).get(view.id, ()) if proof.counts],
        proposals=[models.ProposalView(**row) for row in await ask("proposals", subject=str(view.id))],
        acts=None if acts is None else [models.AuditEntry(**row) for row in reversed(acts)],
        parked=_parked(parked[0]) if parked else None,
        behind=await keys.head_before(ask, view, details["order_by"]),
        payload=next(map(_payload, await ask("payload", **one, **version)), None) if payload else None,
        **details,
    )


async def proofs(store: PostgresStore, ids: Sequence[MessageId]) -> dict[MessageId, list[models.Proof]]:
    """What says that these were delivered although their claims say otherwise; evidence first."""
    async with snapshot(store) as ask:
        return await proofs_of(ask, ids)


async def proofs_of(ask: ReadTransaction, ids: Sequence[MessageId]) -> dict[MessageId, list[models.Proof]]:
    found: dict[MessageId, list[models.Proof]] = {}
    for row in await ask("proofs", ids=list(ids), limit=PROOFS_MAX):
        found.setdefault(row.pop("message_id"), []).append(models.Proof(**row))
    return found


PROOFS_MAX: Final = 20  # of one message


async def list_parked(store: PostgresStore, wanted: ParkedFilter) -> Page[ParkedRecord, ParkedPosition]:
    check_limit(wanted.limit)
    before = wanted.before or ParkedPosition(END_OF_TIME, END_OF_IDS)
    async with message_snapshot(store) as ask:
        at = await moment_of(ask)
        rows = await ask(
            "parked",
            reason=wanted.reason.value,
            destination=wanted.destination,
            tenant=wanted.tenant,
            kind=wanted.kind,
            error_class=wanted.error_class,
            failure_group=wanted.failure_group,
            before_at=before.parked_at,
            before_id=before.id,
            limit=wanted.limit,
        )
    records = [_parked(row) for row in rows]
    return Page.of(records, at, limit=wanted.limit, position=lambda one: ParkedPosition(one.parked_at, one.id))


async def show_parked(store: PostgresStore, message_id: MessageId) -> ParkedRecord | None:
    async with message_snapshot(store) as ask:
        rows = await ask("parked_one", id=message_id)
    return _parked(rows[0]) if rows else None


async def list_destinations(
    store: PostgresStore, *, after: str = "", limit: int = models.DESTINATIONS_MAX
) -> Sequence[models.DestinationView]:
    """Every destination that was ever registered or paused, by name."""
    check_limit(limit)
    return [models.DestinationView(**row) for row in await read(store, "destinations", after=after, limit=limit)]


async def show_destination(store: PostgresStore, name: str) -> models.DestinationView | None:
    return next((one for one in await list_destinations(store) if one.name == name), None)


async def knows_destination(store: PostgresStore, name: str) -> bool:
    """Whether the destination is registered, paused, or has anything open."""
    return bool((await read(store, "knows_destination", name=name))[0]["known"])


async def list_audit(
    store: PostgresStore, *, subject: str | None = None, before: int | None = None, limit: int = 50
) -> Page[models.AuditEntry, int]:
    check_limit(limit)
    async with snapshot(store) as ask:
        at = await moment_of(ask)
        rows = await ask("audit", subject=subject, before=END_OF_AUDIT if before is None else before, limit=limit)
    return Page.of([models.AuditEntry(**row) for row in rows], at, limit=limit, position=lambda entry: entry.id)


def _source(state: str | None) -> Source:
    match state:
        case None:
            return Source("candidates_newest", "message", {})
        case "pending":
            return Source("candidates_pending", "pending", {})
        case "leased":
            return Source("candidates_lease", "lease", {})
        case "parked":
            return Source("candidates_parked", "parked", {"reason": None})
        case "dead" | "held" | "unrecorded":
            return Source("candidates_parked", "parked", {"reason": state})
        case "closed":
            return Source("candidates_closed", "message", {"ended": None})
        case _ if state in STATES:
            return Source("candidates_closed", "message", {"ended": state})
    raise InvalidValue(f"state is {state!r}; it must be one of {', '.join(STATES)}.")


def _search(wanted: MessageFilter) -> dict[str, Any]:
    return {
        "before": wanted.before or END_OF_IDS,
        "window": models.SEARCH_WINDOW,
        "destination": wanted.destination,
        "tenant": wanted.tenant,
        "kind": wanted.kind,
        "limit": wanted.limit,
    }


async def _with_key(ask: ReadTransaction, wanted: MessageFilter) -> list[MessageView]:
    """The one message of a key, if it passes the rest of the filter. A key belongs to a tenant."""
    rows = await ask("candidates_key", tenant=wanted.tenant or "default", key=wanted.key)
    return [view for view in await _views(ask, [row["id"] for row in rows]) if _passes(view, wanted)]


def _passes(view: MessageView, wanted: MessageFilter) -> bool:
    states = {view.state, view.detail} if view.state == "parked" else {view.state}
    if view.state in set(Closed):
        states.add("closed")
    return (
        (wanted.state is None or wanted.state in states)
        and wanted.destination in (None, view.destination)
        and wanted.kind in (None, view.kind)
    )


async def _views(ask: ReadTransaction, ids: Sequence[MessageId]) -> list[MessageView]:
    return [_view(row) for row in await ask("messages", ids=list(ids))] if ids else []


def _view(row: Row) -> MessageView:
    level = row.pop("level")
    return MessageView(**row, priority=PRIORITIES[level])


def _parked(row: Row) -> ParkedRecord:
    return ParkedRecord(**{**row, "reason": ParkReason(row["reason"])})


def _payload(row: Row) -> models.Payload:
    return models.Payload.of(**row)
