"""`redrive reviews decide`: a person says what became of a notification that no provider can be asked about."""

from __future__ import annotations

import click

from redrive.errors import ActRefused, NotFound
from redrive.kit.cli import Call, Who, example, output, why
from redrive.kit.database import Connection
from redrive.systems.reviews.cli.shared import reviews_command
from redrive.systems.reviews.request import folded

_DECIDE = "SELECT redrive_reviews.decide_1(%s, %s, %s, %s, %s, %s, %s) AS result"
_MESSAGE = (
    "SELECT message_id FROM redrive_reviews.delivery"
    " WHERE (tenant, changelist_id, recipient, review_version) = (%s, %s, %s, %s)"
)


@click.command(
    "decide",
    epilog=example(
        "redrive reviews decide shop-42 --version 1 --recipient ada@example.org --sent --reason 'Ada has the mail'"
    ),
)
@click.argument("changelist_id", metavar="CHANGELIST")
@click.option("--version", "review_version", type=click.IntRange(1), required=True, help="Of the review.")
@click.option("--recipient", required=True, help="The address.")
@click.option(
    "--sent/--not-sent", "was_sent", required=True, help="Sent: it counts as notified. Not sent: it is sent again."
)
@why
@reviews_command
def command(
    call: Call,
    conn: Connection,
    changelist_id: str,
    review_version: int,
    recipient: str,
    was_sent: bool,
    who: Who,
    tenant: str,
) -> None:
    """Decide a delivery that was marked as sent without any acceptance on record, and is held for that.

    A notification whose message is held is decided by `redrive held confirm` or `redrive held deny`.
    """
    triple = [tenant, changelist_id, folded(recipient), review_version]
    row = conn.execute(_DECIDE, [*triple, was_sent, who.actor, who.reason]).fetchone()
    assert row is not None
    if row["result"] == "not_found":
        raise NotFound("There is no such delivery.", next=f"redrive reviews show {changelist_id}")
    if row["result"] == "held":
        found = conn.execute(_MESSAGE, triple).fetchone()
        assert found is not None
        act = "confirm" if was_sent else "deny"
        raise ActRefused(
            "The message of this delivery is held, and is decided instead.",
            next=f"redrive held {act} {found['message_id']} --reason …",
        )
    if row["result"] != "done":
        raise ActRefused(f"The delivery is {row['result']}, not held.", next=f"redrive reviews show {changelist_id}")
    if call.json:
        output.document("review_decided", {"result": "sent" if was_sent else "queued"})
    else:
        output.note("It counts as notified." if was_sent else "It is sent again.")
