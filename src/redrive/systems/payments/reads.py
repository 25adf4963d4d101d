"""Reads of payments: `SQL` has the statements of `sql/reads`."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

from redrive.errors import NotFound
from redrive.kit.database import Connection, Row, SqlFiles

SQL: Final = SqlFiles(files("redrive.systems.payments") / "sql" / "reads")


@dataclass(frozen=True, slots=True)
class Shown:
    """One instruction and its messages."""

    instruction: Row
    intents: Sequence[Row]


def show(conn: Connection, instruction_id: str, *, tenant: str) -> Shown:
    """NotFound where there is no such instruction, or none that this login may see."""
    named = {"tenant": tenant, "instruction_id": instruction_id}
    found = SQL.rows(conn, "instruction", named)
    if not found:
        raise NotFound(f"There is no instruction {instruction_id!r} of tenant {tenant!r}.")
    return Shown(found[0], SQL.rows(conn, "intents", named))
