"""`redrive reviews show`: how a review stands."""

from __future__ import annotations

from typing import Final

import click

from redrive.kit.cli import Call, Column, example, output
from redrive.kit.database import Connection, Row
from redrive.systems.reviews import reads
from redrive.systems.reviews.cli.shared import reviews_command

_STAGES: Final = (Column("stage"), Column("state"), Column("attempts", "right"), Column("next", fold=True))
_DELIVERIES: Final = (
    Column("recipient", grow=True),
    Column("by"),
    Column("state"),
    Column("attempts", "right"),
    Column("notification", fold=True),
    Column("message"),
)


@click.command("show", epilog=example("redrive reviews show shop-42", "redrive reviews show shop-42 --version 1"))
@click.argument("changelist_id", metavar="CHANGELIST")
@click.option("--version", type=click.IntRange(1), help="Of the review; the latest unless given.")
@reviews_command
def command(call: Call, conn: Connection, changelist_id: str, version: int | None, tenant: str) -> None:
    """One version of a review: its stages with their own attempts, and each recipient."""
    shown = reads.show(conn, changelist_id, version, tenant=tenant)
    if call.json:
        output.document("review", {"job": shown.job, "stages": shown.stages, "deliveries": shown.deliveries})
        return
    job = shown.job
    output.show(
        output.pairs(
            [
                ("changelist", f"{job['changelist_id']}, version {job['review_version']}"),
                ("state", job["state"]),
                ("message", job["message_id"]),
                ("diff", f"{job['repository']} {job['base_commit']}..{job['head_commit']}"),
                ("findings", "–" if job["findings"] is None else f"{job['findings']}, by {job['critic']}"),
                ("submitted", output.moment(job["created_at"])),
            ]
        ),
        output.table(_STAGES, [_stage(one) for one in shown.stages]),
        output.table(_DELIVERIES, [_delivery(one) for one in shown.deliveries]),
    )
    for one in shown.stages:
        if one["state"] in ("dead", "held", "unrecorded"):
            output.note(f"{one['stage']}: a replay is {one['on_replay']}.")
    for one in shown.deliveries:
        if one["state"] in ("failed", "held") and one["on_replay"]:
            output.note(f"{one['recipient']}: a replay is {one['on_replay']}.")


def _stage(one: Row) -> tuple[object, ...]:
    return one["stage"], output.state(one["state"]), one["attempts"], _next(one)


def _delivery(one: Row) -> tuple[object, ...]:
    recipient = one["recipient"] if one["required"] else f"{one['recipient']} (optional)"
    said = one["notification_id"] or _next(one)
    return recipient, one["provider"], output.state(one["state"]), one["attempts"], said, one["message_id"] or "–"


def _next(one: Row) -> str:
    if one["due_at"] is not None:
        return f"due {output.short_moment(one['due_at'])}"
    return one["error_class"] or "–"
