"""Payments over HTTP, below /api/v1/payments; read-only.

Row-level security limits a caller of one tenant to that tenant's payments (sql/verbs/zz_grants.sql).
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import BaseModel, StringConstraints

from redrive.errors import NotFound
from redrive.kit.database import snapshot
from redrive.kit.web import Permission, Scope, require
from redrive.systems.payments.reads import SQL

LIMIT_MAX = 500
Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]

router = APIRouter()


class Version(BaseModel):
    """The terms of one version of a payment's payload, the account hidden but for its end.

    edited_by: None for the first, which was submitted. attempts: how many had these terms.
    """

    version: int
    amount: str | None
    currency: str | None
    destination: Any
    edited_by: str | None
    attempts: int


class Intent(BaseModel):
    """A message that was made for an instruction. outbox_id: its id.

    amount, currency, destination: of its newest version, which an edit may have changed.
    """

    outbox_id: UUID
    idempotency_key: str
    sequence_id: int
    created_at: datetime
    state: str
    park_reason: str | None
    error_class: str | None
    due_at: datetime | None
    attempts: int | None
    reference: str | None
    version: int
    amount: str | None
    currency: str | None
    destination: Any
    versions: Sequence[Version]


class Instruction(BaseModel):
    """What was submitted. amount: every digit, as text."""

    tenant: str
    instruction_id: str
    participant_id: str
    participant: str
    rail_type: str
    amount: str
    currency: str
    destination: Any
    created_at: datetime
    intents: Sequence[Intent]


class Participant(BaseModel):
    participant_id: str
    name: str
    next_sequence_id: int
    created_at: datetime


class Participants(BaseModel):
    """next: for `after`, None at the end."""

    items: Sequence[Participant]
    next: str | None


@router.get("/instructions/{instruction_id:path}", dependencies=[require(Permission.READ)])
async def show_instruction(scope: Scope, instruction_id: Name) -> Instruction:
    """What is to be paid, and how the messages that were made for it stand."""
    named = {"tenant": scope.tenant, "instruction_id": instruction_id}
    async with snapshot(scope.store) as reads:
        found = await SQL.read(reads, "instruction", named)
        if not found:
            raise NotFound(f"There is no instruction {instruction_id!r}.", next="redrive payments show")
        intents = [Intent(**row) for row in await SQL.read(reads, "intents", named)]
    return Instruction(**found[0], intents=intents)


@router.get("/participants", dependencies=[require(Permission.READ)])
async def list_participants(
    scope: Scope,
    after: Annotated[str, Query(max_length=200)] = "",
    limit: Annotated[int, Query(ge=1, le=LIMIT_MAX)] = 50,
) -> Participants:
    """Participants by id, and the number of their next payment."""
    named = {"tenant": scope.tenant, "after": after, "limit": limit}
    async with snapshot(scope.store) as reads:
        rows = await SQL.read(reads, "participants", named)
    items = [Participant(**row) for row in rows]
    return Participants(items=items, next=items[-1].participant_id if len(items) == limit else None)
