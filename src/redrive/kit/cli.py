"""What the commands of a system share with those of the engine.

`plain_command` gives `--dsn` and `--json` and hands the body a `Call`, `store_command` an open `Database` too,
`system_command` a connection in a transaction and the tenant; `why` asks who does it and for what reason, and hands it
a `Who`. `output` prints tables, notes and documents; `Exit` names
the exit codes.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

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
    "checked",
    "command_line",
    "demo_home",
    "example",
    "load_app",
    "one_line",
    "output",
    "plain_command",
    "store_command",
    "system_command",
    "tenant_option",
    "why",
]
Body = Callable[..., None]


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
