"""What goes in and out of the API: bodies with their bounds, and answers that are no read model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated
from uuid import UUID

from fastapi import Query
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from redrive.operate import cursors
from redrive.operate.actions.results import ActResult, Outcome, count
from redrive.operate.web.principal import Principal
from redrive.store.reads.models import LIMIT_MAX
from redrive.who import REASON_MAX, Who

ITEMS_SHOWN_MAX = 100  # of a step over all that a filter selects


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
Key = Annotated[str, StringConstraints(min_length=1, max_length=1000), Printable]
After = Annotated[str | None, Query(max_length=cursors.LENGTH_MAX, description="The `next` of the page before.")]
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
