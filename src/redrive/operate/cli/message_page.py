"""What `redrive messages show` prints of one message: envelope, place, timeline, evidence."""

import json
from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import RenderableType
from rich.text import Text

from redrive.message import HistoryEntry
from redrive.operate.cli import output
from redrive.operate.cli.output import Column
from redrive.operate.sanitize import one_line, several_lines
from redrive.store.reads.models import TIMELINE_MAX, LateAnswer, MessageDetails, ParkedRecord, Payload, ProposalView

_TIMELINE: Final = (
    Column("#", "right"),
    Column("claimed"),
    Column("ended"),
    Column("took", "right"),
    Column("worker"),
    Column("what happened", fold=True),
    Column("next due"),
)


def message_page(details: MessageDetails) -> Iterator[RenderableType]:
    yield output.pairs(_envelope(details))
    yield heading("Timeline (UTC)")
    yield _timeline(details)
    if details.parked and details.parked.stack:
        yield heading("Where it failed last")
        yield Text(several_lines(details.parked.stack))
    if details.evidence:
        yield heading("Evidence that it was delivered; it can only be confirmed")
        yield from (Text(f"  {one_line(str(proof))}, {output.short_moment(proof.at)}") for proof in details.evidence)
    if details.proposals:
        yield heading("Waits for a second person")
        yield from (Text(f"  {one_line(_proposed(one))}") for one in details.proposals)
    if details.late_answers:
        yield heading("Late answers: refused, because the claim had been lost")
        yield _late(details.late_answers)
    if details.payload:
        yield from _payload(details.payload)


def heading(words: str) -> Text:
    return Text(f"\n{words}", style="bold")


def _envelope(details: MessageDetails) -> Iterator[tuple[str, object]]:
    view = details.view
    yield "message", view.id
    yield "state", output.state(view.state, view.detail)
    yield "destination", view.destination
    yield "tenant", view.tenant
    yield from ((name, value) for name, value in (("kind", view.kind), ("key", view.key)) if value)
    if details.order_by:
        yield "ordered by", f"{details.order_by}, number {details.sequence}"
    if head := details.behind:
        yield "waits behind", f"{head.head}, number {head.sequence}, which is {output.words(head.state)}"
    yield "priority", view.priority
    yield "stage", f"{view.stage}, version {view.version}"
    crashes = f"; {details.crashes} crashes while alone" if details.crashes else ""
    yield "attempts", f"{view.attempt}, of which {view.spent} spent of this stage's budget" + crashes
    yield "created", output.moment(view.created_at)
    yield from ((n, output.moment(t)) for n, t in (("due", view.due_at), ("expires", view.expires_at)) if t)
    yield from _place(details)
    yield (
        "payload",
        f"{_size(view.body_bytes)} {view.content_type}" + ("" if details.payload else " (hidden; --payload)"),
    )


def _size(body_bytes: int | None) -> str:
    return "" if body_bytes is None else f"{body_bytes:,} bytes,"


def _place(details: MessageDetails) -> Iterator[tuple[str, object]]:
    if details.worker:
        yield "in hand of", f"{details.relay or 'a relay that is gone'} ({details.worker})"
        yield "lease", f"{output.moment(details.claimed_at)} until {output.moment(details.leased_until)}"
    if details.in_doubt_since:
        yield "in doubt since", output.moment(details.in_doubt_since)
    if details.cancel_requested:
        yield "cancel", "requested"
    if record := details.parked:
        yield "parked", output.moment(record.parked_at)
        yield "error class", record.error_class + (" (budget used up)" if record.exhausted else "")
        yield from ((n, v) for n, v in (("text", record.text), ("answer kept", _json(record.kept_answer))) if v)
        yield from _workflow(record)


def _workflow(record: ParkedRecord) -> Iterator[tuple[str, object]]:
    if record.failure_group:
        yield "failure group", record.failure_group[:12]
    if record.workflow != "open" or record.escalated:
        words = [record.workflow, "ESCALATED: a replay ended in the same error class" if record.escalated else ""]
        yield "workflow", "; ".join(filter(None, words))
    named = ("cause", "ticket", "evidence", "owner")
    yield from ((name, getattr(record, name)) for name in named if getattr(record, name))


def _json(value: object) -> str:
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def _timeline(details: MessageDetails) -> RenderableType:
    if not details.timeline and not details.worker:
        return Text("No attempt yet.")
    rows = [_attempt(entry) for entry in details.timeline]
    if details.worker:
        began = output.short_moment(details.claimed_at)
        rows.append((details.view.attempt, began, None, None, _short(details.worker), "DISPATCHING", None))
    if len(details.timeline) == TIMELINE_MAX:
        rows.insert(0, ("…", "", "", "", "", f"older than the latest {TIMELINE_MAX}: left out", ""))
    return output.table(_TIMELINE, rows)


def _attempt(entry: HistoryEntry) -> tuple[object, ...]:
    took = None if entry.latency_ms is None else entry.latency_ms / 1000
    return (
        entry.attempt,
        output.short_moment(entry.claimed_at),
        output.short_moment(entry.completed_at),
        output.span(took),
        _short(entry.worker),
        _what(entry),
        output.short_moment(entry.due_at),
    )


def _what(entry: HistoryEntry) -> Text:
    """`settle: retryable HTTP_503, retry` or `requeue by anna: erp is back`."""
    answer = " ".join(part for part in (entry.answer, entry.code) if part)
    outcome = entry.closed or entry.settlement
    parts = [part for part in (answer, outcome if outcome != entry.verb else None) if part]
    words = f"{entry.verb}: {' → '.join(parts)}" if parts else entry.verb
    if entry.actor:
        words += f" by {entry.actor}: {entry.reason}"
    if entry.reference:
        words += f", reference {entry.reference}"
    text = Text(one_line(words), style=output.STATE_STYLES.get(entry.closed or "", ""))
    return text.append(f"\n{one_line(entry.text)}", style="dim") if entry.text else text


def _short(worker: object) -> str | None:
    return None if worker is None else str(worker)[-8:]


def _proposed(one: ProposalView) -> str:
    return f"{one.act} proposed by {one.asked_by} at {output.short_moment(one.asked_at)}: {one.reason}"


def _late(answers: Sequence[LateAnswer]) -> RenderableType:
    columns = (Column("#", "right"), *map(Column, ("at", "worker", "answer", "code", "reference")))
    rows = [
        (one.attempt, output.short_moment(one.at), _short(one.worker), one.answer, one.code, one.reference)
        for one in answers
    ]
    return output.table(columns, rows)


def _payload(payload: Payload) -> Iterator[RenderableType]:
    if payload.headers:
        yield heading("Headers")
        yield output.pairs(payload.headers.items())
    yield heading("Payload")
    try:
        yield Text(several_lines(payload.body.decode()))
    except UnicodeDecodeError:
        yield Text(f"{len(payload.body):,} bytes that are no text; --json has them in base64.")
