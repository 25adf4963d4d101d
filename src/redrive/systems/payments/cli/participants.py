"""`redrive payments participants`: who pays."""

from typing import Final

import click

from redrive.kit.cli import Call, Column, example, output, show_rows
from redrive.kit.database import Connection, Row
from redrive.systems.payments.cli.shared import page_limit, payments_command
from redrive.systems.payments.reads import SQL
from redrive.systems.payments.submission import add_participant

_COLUMNS: Final = (
    Column("participant", grow=True),
    Column("name", grow=True),
    Column("next number", "right"),
    Column("since (UTC)"),
)


@click.group("participants")
def command() -> None:
    """Who pays. Payments of one are made one after the other, whatever their rails."""


@command.command("add", epilog=example("redrive payments participants add acme --name 'Acme Ltd'"))
@click.argument("participant_id", metavar="PARTICIPANT")
@click.option("--name", default="", help="For people.")
@payments_command
def add(call: Call, conn: Connection, participant_id: str, name: str, tenant: str) -> None:
    """Make one known, so that payments of it are accepted."""
    is_new = add_participant(conn, participant_id, name=name, tenant=tenant)
    if call.json:
        output.document("payments_participant", {"participant_id": participant_id, "already_existed": not is_new})
        return
    output.note(f"{participant_id} is known now." if is_new else f"{participant_id} was known already.")


@command.command("list", epilog=example("redrive payments participants list"))
@click.option("--after", default="", help="Go on behind this one.")
@page_limit
@payments_command
def list_(call: Call, conn: Connection, tenant: str, after: str, limit: int) -> None:
    """By id, with the number that the next payment of each takes."""
    rows = SQL.rows(conn, "participants", {"tenant": tenant, "after": after, "limit": limit})
    show_rows(
        call, "payments_participants", rows, _COLUMNS, _cells, position="participant_id", limit=limit, option="--after"
    )


def _cells(one: Row) -> tuple[object, ...]:
    return one["participant_id"], one["name"], one["next_sequence_id"], output.short_moment(one["created_at"])
