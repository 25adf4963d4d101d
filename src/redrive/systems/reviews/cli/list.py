"""`redrive reviews list`: jobs, the newest first."""

from __future__ import annotations

from typing import Final

import click

from redrive.kit.cli import Call, Column, example, output, show_rows
from redrive.kit.database import Connection, Row
from redrive.systems.reviews.cli.shared import reviews_command
from redrive.systems.reviews.reads import SQL

_COLUMNS: Final = (
    Column("changelist", grow=True),
    Column("version", "right"),
    Column("repository"),
    Column("state"),
    Column("findings", "right"),
    Column("notified", "right"),
    Column("submitted"),
)


@click.command("list", epilog=example("redrive reviews list", "redrive reviews list --state retryable_failed"))
@click.option("--state", type=click.Choice(["succeeded", "in_progress", "retryable_failed"]), help="Only these.")
@click.option("--before", type=click.UUID, help="Behind this job, as `next` of the page before says.")
@click.option("--limit", type=click.IntRange(1, 500), default=100, show_default=True, help="Rows of a page.")
@reviews_command
def command(call: Call, conn: Connection, state: str | None, before: object, limit: int, tenant: str) -> None:
    """Jobs, and how many of their recipients have been notified."""
    rows = SQL.rows(conn, "jobs", {"tenant": tenant, "state": state, "before": before, "limit": limit})
    show_rows(call, "reviews", rows, _COLUMNS, _cells, position="job_id", limit=limit)


def _cells(one: Row) -> tuple[object, ...]:
    return (
        one["changelist_id"],
        one["review_version"],
        one["repository"],
        output.state(one["state"]),
        "–" if one["findings"] is None else one["findings"],
        f"{one['notified']} of {one['recipients']}",
        output.short_moment(one["created_at"]),
    )
