"""Reads of reviews: `SQL` has the statements of `sql/reads`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

from redrive.errors import NotFound
from redrive.kit.database import Connection, Row, SqlFiles

SQL: Final = SqlFiles(files("redrive.systems.reviews") / "sql" / "reads")


@dataclass(frozen=True, slots=True)
class Shown:
    """One job, how its stages went, and its recipients."""

    job: Row
    stages: Sequence[Row]
    deliveries: Sequence[Row]


def show(conn: Connection, changelist_id: str, version: int | None, *, tenant: str) -> Shown:
    """version: None = the latest. NotFound where there is no such job, or none that this login may see."""
    named = {"tenant": tenant, "changelist_id": changelist_id, "review_version": version}
    found = SQL.rows(conn, "job", named)
    if not found:
        raise no_job(changelist_id, version)
    job = found[0]
    named["review_version"] = job["review_version"]
    return Shown(job, SQL.rows(conn, "stages", named), SQL.rows(conn, "deliveries", named))


def no_job(changelist_id: str, version: int | None) -> NotFound:
    of_version = "" if version is None else f" in version {version}"
    return NotFound(f"There is no review of changelist {changelist_id!r}{of_version}.", next="redrive reviews list")
