"""`redrive`: the operator's command line.

Data go to stdout, everything else to stderr. An error becomes one sentence (or, with `--json`, one object) and one of
`exit_codes`.
"""

import json
import logging
import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NoReturn

import click

import redrive
from redrive.operate.cli import output
from redrive.operate.cli.exit_codes import EXIT_CODES_HELP, Exit, exit_of, problem
from redrive.system import discover

# A module of its own for each; it is imported when its noun is used, so that a command starts at once.
NOUNS: Final = (
    "audit", "bench", "completion", "config", "console", "db", "dead", "demo", "destinations", "doctor", "groups",
    "health", "held", "keys", "messages", "metrics", "prove", "relay", "replay", "status", "tokens", "unrecorded", "up",
    "worker",
)  # fmt: skip


class Commands(click.Group):
    """All nouns, and the installed systems' own commands."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return [*NOUNS, *sorted(self._systems())]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name in NOUNS:
            found: click.Command = import_module(f"redrive.operate.cli.{cmd_name}").command
            return found
        return self._systems().get(cmd_name)

    def main(  # type: ignore[override] # ours never returns
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any
    ) -> NoReturn:
        arguments = list(sys.argv[1:] if args is None else args)
        extra["standalone_mode"] = False
        try:
            answer = super().main(args=arguments, prog_name=prog_name or "redrive", **extra)
        except (Exception, KeyboardInterrupt) as error:
            _report(error, arguments)
            _leave(exit_of(error))
        _leave(answer if isinstance(answer, int) else Exit.OK)

    def _systems(self) -> dict[str, click.Command]:
        found = {name: system.cli for name, system in discover().items()}
        return {name: one for name, one in found.items() if isinstance(one, click.Command) and name not in NOUNS}


def _leave(code: int) -> NoReturn:
    """A `def` handler that is stuck in its thread was settled as Unknown; it must not keep the process from ending."""
    relay = sys.modules.get("redrive.operate.cli.relay")  # imported only by a command that runs handlers
    if relay is not None and relay.STUCK:
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _report(error: BaseException, arguments: Sequence[str]) -> None:
    if "--debug" in arguments:
        traceback.print_exception(error)
    if exit_of(error) is Exit.INTERRUPTED:
        return
    said = problem(error)
    if "--json" in arguments:
        print(json.dumps(said, ensure_ascii=False), file=sys.stderr)
        return
    output.prose(f"{said['title']}: {said['detail']}", style="bold red")
    if said["next"]:
        output.note(f"Next: {said['next']}")


@click.command(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=EXIT_CODES_HELP,
)
@click.version_option(redrive.__version__, prog_name="redrive")
@click.option("--dsn", metavar="DSN", help="The database. Default: REDRIVE_DSN, redrive.toml, DATABASE_URL, PG*.")
@click.option(
    "--config", type=click.Path(path_type=Path), metavar="FILE", help="Settings. Default: redrive.toml, if there."
)
@click.option("--debug", is_flag=True, help="Show where an error comes from.")
def cli(**_: Any) -> None:
    """See what flows, what waits and why, and act on it.

    Redrive delivers what your transactions committed. Begin with `redrive status`.
    """


def main() -> NoReturn:
    cli.main()


if __name__ == "__main__":
    main()
