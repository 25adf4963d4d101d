"""`redrive payments adopt`: an older outbox of payments is moved over, and gone."""

from typing import Final

import click

from redrive.kit.cli import Call, Column, Exit, example, output
from redrive.kit.database import Connection
from redrive.systems.payments import adopt
from redrive.systems.payments.adopt import SHOWN_MAX, Plan
from redrive.systems.payments.cli.shared import payments_command

_COUNTS: Final = (Column("rows"), Column("count", "right"), Column("become", fold=True))
_UNEXPLAINED: Final = (Column("outbox id"), Column("why it is unexplained", fold=True))
_BECOME: Final = {
    "waiting": "pending, sent in their order",
    "doubtful": "pending, and the rail is asked before anything is sent",
    "paid": "delivered: known, and never sent",
    "failed": "dead letters",
}


@click.command(
    "adopt",
    epilog=example(
        "redrive payments adopt --dry-run",
        "redrive payments adopt --table app.payment_outbox --status DISPATCHING=doubtful",
    ),
)
@click.option("--table", default="payment_outbox", show_default=True, help="The older outbox.")
@click.option("--status", "words", multiple=True, metavar="WORD=MEANING", help="What a status means; repeatable.")
@click.option("--dry-run", is_flag=True, help="Say what would become of each row; change nothing.")
@payments_command
def command(call: Call, conn: Connection, table: str, words: tuple[str, ...], dry_run: bool, tenant: str) -> None:
    """Move a legacy payment_outbox in place: all rows over with their ids and numbers, then the table is dropped.

    One transaction, with the table locked. Stop its dispatcher first. Refused while a row is unexplained: an unknown
    status (meanings are waiting, doubtful, paid, failed), a number that is missing, a payment that may not be.
    """
    known = adopt.read_words(words)
    if not dry_run:
        _show(call, adopt.adopt(conn, table, tenant=tenant, words=known))
        return
    found = adopt.plan(conn, table, tenant=tenant, words=known)
    conn.rollback()
    _show(call, found)
    if found.unexplained:
        raise click.exceptions.Exit(Exit.FINDINGS)


def _show(call: Call, plan: Plan) -> None:
    if call.json:
        unexplained = [one._asdict() for one in plan.unexplained]
        document = {"table": plan.table, "counts": plan.counts, "unexplained": unexplained, "dropped": plan.dropped}
        output.document("payments_adopted", document)
        return
    rows = [(meaning, count, _BECOME[meaning]) for meaning, count in plan.counts.items()]
    output.show(output.table(_COUNTS, rows))
    if plan.unexplained:
        shown = [(one.outbox_id, one.why) for one in plan.unexplained[:SHOWN_MAX]]
        output.show(output.table(_UNEXPLAINED, shown))
        output.note(f"Unexplained rows: {len(plan.unexplained)}. While there are any, nothing is moved.")
    output.note(f"{plan.table} is gone." if plan.dropped else "Nothing was changed.")
