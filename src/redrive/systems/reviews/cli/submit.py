"""`redrive reviews submit`: a changelist for review."""

from __future__ import annotations

from typing import Any

import click

from redrive.kit.cli import Call, example
from redrive.kit.database import Connection
from redrive.systems.reviews.cli.shared import recipients_command, show_submitted
from redrive.systems.reviews.request import ReviewRequest
from redrive.systems.reviews.submission import submit


@click.command(
    "submit",
    epilog=example(
        "redrive reviews submit shop-42 --key pr-42-1 --repository shop --base main --head topic --notify "
        "ada@example.org"
    ),
)
@click.argument("changelist_id", metavar="CHANGELIST")
@click.option("--key", "idempotency_key", required=True, help="Of this request: the same again changes nothing.")
@click.option("--repository", required=True, help="By the name that the relays know.")
@click.option("--base", "base_commit", required=True, help="The commit before the change.")
@click.option("--head", "head_commit", required=True, help="The commit with the change.")
@click.option("--version", "review_version", type=int, default=1, show_default=True, help="Of the review.")
@recipients_command
def command(call: Call, conn: Connection, **asked: Any) -> None:
    """Have the difference of two commits reviewed, and the recipients notified.

    A key or a version that was submitted before is answered with that job. Another version of a changelist is made by
    `redrive reviews rerun`.
    """
    show_submitted(call, submit(conn, ReviewRequest(**asked)))
