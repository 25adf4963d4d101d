"""`redrive reviews attempts`: every attempt to notify one recipient of one version (R-11)."""

from __future__ import annotations

import click

from redrive.errors import NotFound
from redrive.kit.cli import Call, attempts_table, example, output
from redrive.kit.database import Connection
from redrive.systems.reviews.cli.shared import reviews_command
from redrive.systems.reviews.reads import SQL
from redrive.systems.reviews.request import folded


@click.command("attempts", epilog=example("redrive reviews attempts shop-42 --version 1 --recipient ada@example.org"))
@click.argument("changelist_id", metavar="CHANGELIST")
@click.option("--version", "review_version", type=click.IntRange(1), required=True, help="Of the review.")
@click.option("--recipient", required=True, help="The address.")
@reviews_command
def command(call: Call, conn: Connection, changelist_id: str, review_version: int, recipient: str, tenant: str) -> None:
    """All attempts and acts, from the archive, also of messages that were made to send it again."""
    named = {
        "tenant": tenant,
        "changelist_id": changelist_id,
        "review_version": review_version,
        "recipient": folded(recipient),
    }
    rows = SQL.rows(conn, "attempts", named)
    if not rows:
        raise NotFound("Nothing was tried for this recipient.", next=f"redrive reviews show {changelist_id}")
    if call.json:
        output.document("review_attempts", {"items": rows})
        return
    output.show(attempts_table(rows))
