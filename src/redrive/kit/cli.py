"""What the commands of a system share with those of the engine.

`plain_command` gives `--dsn` and `--json` and hands the body a `Call`, `store_command` an open `Database` too; `why`
asks who does it and for what reason, and hands it a `Who`. `output` prints tables, notes and documents; `Exit` names
the exit codes.
"""

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
    "why",
]
