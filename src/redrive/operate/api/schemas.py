"""What goes in and out of the API: bodies with their bounds, pages, and rows that are not told as they are kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Generic, TypeVar
from uuid import UUID

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from redrive.message import HistoryEntry
from redrive.operate.actions.results import ActResult, Outcome, count
from redrive.operate.web import Principal
from redrive.store.reads.models import (
    LIMIT_MAX,
    AuditEntry,
    GroupStatus,
    GroupView,
    KeyView,
    LateAnswer,
    MessageView,
    Page,
    ParkedRecord,
    Proof,
    ProposalView,
)
from redrive.who import Who

REASON_MAX = 500
TEXT_MAX = 500
ITEMS_SHOWN_MAX = 100  # of a step over all that a filter selects
Row = TypeVar("Row")
Position = TypeVar("Position")


def _printable(value: str) -> str:
    if not value.isprintable():
        raise ValueError("it has characters that cannot be printed")
    return value


Printable = AfterValidator(_printable)
Reason = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=REASON_MAX), Printable,
    Field(description="Why; kept in the audit.", examples=["INC-7"]),
]  # fmt: skip
Word = Annotated[str, StringConstraints(min_length=1, max_length=100), Printable]
Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=TEXT_MAX), Printable]
Key = Annotated[str, StringConstraints(min_length=1, max_length=1000), Printable]
Limit = Annotated[int, Field(ge=1, le=LIMIT_MAX, description="Rows of a page.")]
Ids = Annotated[list[UUID], Field(min_length=1, max_length=LIMIT_MAX, description="Messages, by their ids.")]


class Body(BaseModel):
    """Unknown fields are refused."""

    model_config = ConfigDict(extra="forbid")


class Why(Body):
    reason: Reason

    def who(self, principal: Principal) -> Who:
        """The actor is the caller, whatever the request says."""
        return Who(actor=principal.name, reason=self.reason)


class Listed(BaseModel, Generic[Row]):
    """A page. at: the database's clock. next: for `after`, None at the end. looked_at: where a search was cut short."""

    items: Sequence[Row]
    at: datetime
    next: str | None
    looked_at: int | None = None


def listed(page: Page[Row, Position], cursor: Callable[[Position], str]) -> Listed[Row]:
    following = None if page.next is None else cursor(page.next)
    return Listed(items=page.rows, at=page.at, next=following, looked_at=page.looked_at)


class Acted(BaseModel):
    """What became of each message. items: of many those first that were not done, and a hundred at most."""

    done: int
    asked: int
    would: int
    refused: int
    not_found: int
    items: Sequence[ActResult]


def acted(results: Sequence[ActResult]) -> Acted:
    counted = {one.value: number for one, number in count(results).items()}
    worst = sorted(results, key=lambda one: one.outcome is Outcome.DONE) if len(results) > LIMIT_MAX else results
    return Acted(**counted, items=worst[:ITEMS_SHOWN_MAX] if len(results) > LIMIT_MAX else results)


class Group(BaseModel):
    """A failure group. seen: ever. waiting: parked now, up to a limit."""

    id: str
    destination: str
    kind: str
    error_class: str
    sample_text: str | None
    seen: int
    first_seen_at: datetime
    last_seen_at: datetime
    status: GroupStatus
    owner: str | None
    note: str | None
    snoozed_until: datetime | None
    resolved_at: datetime | None
    waiting: int


def group(view: GroupView) -> Group:
    return Group(id=view.id, **{name: getattr(view, name) for name in Group.model_fields if name != "id"})


class OneGroup(BaseModel):
    group: Group
    likely_cause: str
    first: str
    runbook: str
    messages: Sequence[ParkedRecord]


class Life(BaseModel):
    """One message with its whole life, without its payload. acts: None where the caller may not see them."""

    view: MessageView
    order_by: str | None
    sequence: int | None
    in_doubt_since: datetime | None
    crashes: int
    lookups: int
    cancel_requested: bool
    policy_version: str | None
    worker: UUID | None
    relay: str | None
    claimed_at: datetime | None
    leased_until: datetime | None
    timeline: Sequence[HistoryEntry]
    late_answers: Sequence[LateAnswer]
    evidence: Sequence[Proof]
    proposals: Sequence[ProposalView]
    acts: Sequence[AuditEntry] | None
    behind: KeyView | None
    parked: ParkedRecord | None


class PayloadShown(BaseModel):
    """text: where it is UTF-8, exactly as it was sent; else base64."""

    content_type: str
    headers: Mapping[str, str]
    text: str | None
    base64: str | None


class PlanShown(BaseModel):
    """would: how many would go. skipped: how many not, by the reason. second_person: it needs one.

    late_successes: of how many that would go a late answer, which changed nothing, says that they were delivered.
    """

    would: int
    skipped: Mapping[str, int]
    second_person: bool
    late_successes: int


class Made(BaseModel):
    id: UUID


class MadeToken(Made):
    """secret: shown now and never again; None in a repeated answer."""

    secret: str | None


class Me(BaseModel):
    name: str
    role: str
    tenant: str
    permissions: Sequence[str]
