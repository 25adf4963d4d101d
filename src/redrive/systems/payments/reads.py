"""What people ask about payments. The SQL of a read is `sql/reads/<name>.sql`; writes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from redrive.errors import NotFound
from redrive.systems.payments.database import Connection, Row, read


@dataclass(frozen=True, slots=True)
class Shown:
    """One instruction, and the messages that were made for it."""

    instruction: Row
    intents: Sequence[Row]


def show(conn: Connection, instruction_id: str, *, tenant: str) -> Shown:
    """NotFound where there is no such instruction, or none that this login may see."""
    named = {"tenant": tenant, "instruction_id": instruction_id}
    found = read(conn, "instruction", named)
    if not found:
        raise NotFound(f"There is no instruction {instruction_id!r} of tenant {tenant!r}.")
    return Shown(found[0], read(conn, "intents", named))


def participants(conn: Connection, *, tenant: str, after: str, limit: int) -> Sequence[Row]:
    """By id, a page."""
    return read(conn, "participants", {"tenant": tenant, "after": after, "limit": limit})
