"""`redrive reviews rerun`: a changelist again, under a higher version."""

from __future__ import annotations

from typing import Any

import click

from redrive.kit.cli import Call, example
from redrive.kit.database import Connection
from redrive.systems.reviews.cli.shared import recipients_command, show_submitted
from redrive.systems.reviews.request import Recipient
from redrive.systems.reviews.submission import rerun


@click.command("rerun", epilog=example("redrive reviews rerun shop-42 --version 2 --key pr-42-2 --head topic"))
@click.argument("changelist_id", metavar="CHANGELIST")
@click.option("--version", "review_version", type=int, required=True, help="Higher than the latest.")
@click.option("--key", "idempotency_key", required=True, help="Of this request, a new one.")
@click.option("--base", "base_commit", help="Another commit before the change.")
@click.option("--head", "head_commit", help="Another commit with the change.")
@recipients_command
def command(call: Call, conn: Connection, changelist_id: str, recipients: list[Recipient], **asked: Any) -> None:
    """Review a changelist again. What is not given is as in the version before; all recipients are notified anew."""
    show_submitted(call, rerun(conn, changelist_id, recipients=recipients or None, **asked))
