"""Reads of evidence: `SQL` has the statements of `sql/reads`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final
from uuid import UUID

from redrive.errors import NotFound
from redrive.kit.database import Row, SqlFiles

SQL: Final = SqlFiles(files("redrive.systems.evidence") / "sql" / "reads")


@dataclass(frozen=True, slots=True)
class Lineage:
    """From the archive to the events. origin: archive, row and artifact. messages: requests of the row, attempts of the
    artifact, results. attempts: what the engine did with the attempts' messages.
    """

    origin: Row
    messages: Sequence[Row]
    attempts: Sequence[Row]

    def document(self) -> Mapping[str, Any]:
        return {"origin": self.origin, "messages": self.messages, "attempts": self.attempts}


def no_job(id: UUID) -> NotFound:
    return NotFound(f"There is no evidence job {id}.", next="redrive evidence show")


def no_artifact(id: UUID) -> NotFound:
    return NotFound(f"There is no artifact {id}.", next="redrive evidence show JOB --artifacts")
