"""What the commands of a system share with those of the engine.

`plain_command` gives `--dsn` and `--json` and hands the body a `Call`, `store_command` an open `Database` too,
`system_command` a connection in a transaction and the tenant; `why` asks who does it and for what reason, and hands it
a `Who`. `output` prints tables, notes and documents, `show_rows` a page of a list, `attempts_table` attempts of the
engine; `Exit` names the exit codes.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, Final

import click

from redrive.operate.cli import output
from redrive.operate.cli.acts import why
from redrive.operate.cli.context import Call, checked, example, plain_command, store_command
from redrive.operate.cli.exit_codes import Exit
from redrive.operate.cli.local_server import command_line, demo_home
from redrive.operate.cli.output import Column
from redrive.operate.cli.relay import load as load_app
from redrive.operate.sanitize import one_line
from redrive.who import Who

__all__ = [
    "Call",
    "Column",
    "Exit",
    "Who",
    "attempts_table",
    "checked",
    "command_line",
    "demo_home",
    "example",
    "load_app",
    "one_line",
    "output",
    "plain_command",
    "show_rows",
    "store_command",
    "system_command",
    "tenant_option",
    "why",
]
Body = Callable[..., None]
Row = Mapping[str, Any]
_ATTEMPTS: Final = (
    Column("attempt", "right"),
    Column("what"),
    Column("answer"),
    Column("code", grow=True),
    Column("reference"),
    Column("ended"),
)


def system_command(system: str) -> Callable[[Body], Body]:
    """`--dsn`, `--json` and `--tenant`: the body gets a Call, a connection in a transaction, and the tenant."""

    def decorate(body: Body) -> Body:
        @wraps(body)
        def command(call: Call, **values: Any) -> None:
            from redrive.kit.database import connected  # psycopg is loaded when a command runs, not for its help

            with connected(call.dsn, name=f"redrive {system}") as conn:
                body(call, conn, **values)

        return plain_command(tenant_option(system)(command))

    return decorate


def tenant_option(system: str) -> Callable[[Body], Body]:
    return click.option("--tenant", default="default", show_default=True, help=f"Whose {system}.")


def show_rows(
    call: Call,
    document: str,
    rows: Sequence[Row],
    columns: Sequence[Column],
    cells: Callable[[Row], Sequence[object]],
    *,
    position: str,
    limit: int,
    option: str = "--before",
) -> None:
    """A page of a list: `{"items", "next"}` for a program, a table for a person. position: the column to go on from."""
    following = rows[-1][position] if len(rows) == limit else None
    if call.json:
        output.document(document, {"items": rows, "next": following})
        return
    output.show(output.table(columns, [cells(row) for row in rows]))
    if following:
        output.note(f"More: the same with {option} {following}")


def attempts_table(rows: Sequence[Row], *, number: str = "attempt") -> Any:
    """Attempts and acts, as systems read them from the engine's archive. number: the column with the attempt's."""
    return output.table(
        _ATTEMPTS,
        [
            (
                row[number],
                row["verb"] if row["actor"] is None else f"{row['verb']} by {row['actor']}",
                row["answer"] or "–",
                row["code"] or "–",
                row["reference"] or "–",
                output.short_moment(row["completed_at"]) if row["completed_at"] else "under way",
            )
            for row in rows
        ],
    )
