"""`redrive payments findings`: what the comparison of the books could not explain, and what people know of it."""

from typing import Final

import click

from redrive.kit.cli import Call, Column, Who, example, output, why
from redrive.kit.database import Connection
from redrive.systems.payments import findings
from redrive.systems.payments.cli.shared import page_limit, payments_command

_COLUMNS: Final = (
    Column("rail"),
    Column("kind"),
    Column("subject"),
    Column("state"),
    Column("what was found", grow=True, fold=True),
)


@click.group("findings")
def command() -> None:
    """What intents, archive and statements do not agree about; acknowledge what is explained from outside."""


@command.command("list", epilog=example("redrive payments findings list", "redrive payments findings list --all"))
@click.option("--rail", "rail_type", help="Of this rail only.")
@click.option("--all", "resolved", is_flag=True, help="Also those that a later comparison no longer found.")
@page_limit
@payments_command
def list_(call: Call, conn: Connection, rail_type: str | None, resolved: bool, limit: int, tenant: str) -> None:  # noqa: ARG001
    """The latest first, with what people have acknowledged. Findings are of a rail, whatever the tenant."""
    rows = findings.listed(conn, rail_type=rail_type, resolved=resolved, limit=limit)
    if call.json:
        output.document("payments_findings", {"items": rows})
        return
    if not rows:
        output.note("No finding is open.")
        return
    shown = [(one["rail_type"], one["kind"], one["subject"], one["state"], one["sentence"]) for one in rows]
    output.show(output.table(_COLUMNS, shown))


@command.command(
    "acknowledge",
    epilog=example(
        "redrive payments findings acknowledge sepa twice ID --reference REV-88 --reason 'the rail took one back'"
    ),
)
@click.argument("rail_type", metavar="RAIL")
@click.argument("kind")
@click.argument("subject")
@click.option("--reference", required=True, help="Of the evidence: a reversal, a refund, a letter of the rail.")
@why
@payments_command
def acknowledge(
    call: Call,
    conn: Connection,
    rail_type: str,
    kind: str,
    subject: str,
    reference: str,
    who: Who,
    tenant: str,  # noqa: ARG001 - a finding is of a rail, whatever the tenant
) -> None:
    """Say that a finding is explained by something that no statement shows; two people have to.

    It then no longer keeps a comparison from being clean. If its evidence changes, it is open again.
    """
    named = {"rail_type": rail_type, "kind": kind, "subject": subject, "reference": reference}
    findings.acknowledge(conn, **named, actor=who.actor, reason=who.reason)
    if call.json:
        output.document("payments_acknowledged", named)
    else:
        output.note(f"{kind} of {subject} on {rail_type} is acknowledged.")
