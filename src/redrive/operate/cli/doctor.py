"""`redrive doctor`: whether everything is as it must be, and what to do where it is not."""

import asyncio
from typing import Final

import click
from rich.text import Text

from redrive.operate import doctor
from redrive.operate.cli import output
from redrive.operate.cli.context import Call, example, plain_command
from redrive.operate.cli.exit_codes import Exit
from redrive.operate.cli.output import Column
from redrive.operate.doctor import Point, Verdict
from redrive.operate.doctor_brokers import examine_brokers
from redrive.operate.installed import installed_sets
from redrive.operate.sanitize import one_line
from redrive.relay.load_app import load_app

_COLUMNS: Final = (Column("point"), Column(""), Column("what was seen", grow=True))
_STYLES: Final = {Verdict.OK: "green", Verdict.WARN: "yellow", Verdict.FAIL: "bold red", Verdict.SKIPPED: "dim"}


@click.command(
    "doctor",
    epilog=example("redrive doctor", "redrive doctor shop:app", "redrive doctor --json --strict"),
)
@click.argument("app_spec", metavar="[MODULE:APP]", required=False)
@click.option("--strict", is_flag=True, help="Exit with 6 for a warning too.")
@plain_command
def command(call: Call, app_spec: str | None, strict: bool) -> None:
    """Look at the connection, the server, the schema, this login and the work, and say what to do.

    With an app also at the brokers of its consumers and destinations (NATS, Redis). Nothing is changed. OK: as it must
    be. WARN: it will hinder, or hides something. FAIL: it hinders now; exit with 6.
    """
    listen_dsn = call.settings.listen_dsn
    points = asyncio.run(doctor.examine(call.dsn, listen_dsn=listen_dsn, sets=installed_sets()))
    if app_spec is not None:
        days = call.settings.inbox_retention_days
        seconds = None if days is None else days * 86_400
        points += asyncio.run(examine_brokers(load_app(app_spec), inbox_seconds=seconds))
    if call.json:
        output.document("doctor", {"points": points})
    else:
        _show(points)
    bad = {Verdict.FAIL, Verdict.WARN} if strict else {Verdict.FAIL}
    if any(point.verdict in bad for point in points):
        raise click.exceptions.Exit(Exit.FINDINGS)


def _show(points: list[Point]) -> None:
    output.show(output.table(_COLUMNS, [_row(point) for point in points]))
    for point in points:
        if point.next:
            line = Text(f"{point.verdict.upper()} {point.name}: ", style=_STYLES[point.verdict])
            output.show(line.append(one_line(point.next), style="not bold default"))


def _row(point: Point) -> tuple[object, ...]:
    return point.name, Text(point.verdict.upper(), style=_STYLES[point.verdict]), point.detail
