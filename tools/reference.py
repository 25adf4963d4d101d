"""The reference pages (`docs/reference/`), made from the code so that they cannot say anything else.

    python -m tools.reference --write

Settings, errors, answers, public names and commands are read from the objects themselves (the dataclasses in
`reference_api`), events, functions and tables from the sources (`reference_sources`). `tests/docs/test_reference.py`
fails when a page is not what the code says. The newest Django migration is stamped with the SQL by the same command.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import click

from redrive import errors
from redrive.operate.cli.exit_codes import exit_of
from redrive.operate.cli.main import Commands, cli
from redrive.operate.embedded import EmbeddedError
from redrive.settings import HEALS_WITHIN_SECONDS, HEARTBEATS_PER_LEASE, LEASE_SECONDS_ADVISED, TABLE, Setting
from redrive.settings_sources import PREFIX
from tools import django_migration, documents, reference_api, reference_http, reference_metrics, reference_sources
from tools.reference_text import paragraph, table

ROOT: Final = Path(__file__).parents[1]
PAGES: Final = ROOT / "docs" / "reference"
MADE: Final = "Made from the code by `python -m tools.reference --write`; do not edit."
HELP_COLUMNS: Final = 110

CALLER: Final = "The caller must act: the call is wrong, nothing was changed"
OPERATOR: Final = "The operator must act: the message names what helps"
NOBODY: Final = "No one must act"


def pages() -> dict[str, str]:
    """Every page by its file name."""
    made: Mapping[str, Callable[[], Iterator[str]]] = {
        "answers.md": reference_api.answers_page,
        "api.md": reference_api.api_page,
        "cli.md": cli_page,
        "errors.md": errors_page,
        "events.md": reference_sources.events_page,
        "http.md": reference_http.http_page,
        "json.md": documents.page,
        "metrics.md": reference_metrics.metrics_page,
        "settings.md": settings_page,
        "sql.md": reference_sources.sql_page,
        "tables.md": reference_sources.tables_page,
    }
    return {name: _joined(page()) for name, page in made.items()}


def _joined(lines: Iterator[str]) -> str:
    title, *rest = lines
    return "\n".join([title, "", MADE, *rest]).rstrip() + "\n"


# settings


def settings_page() -> Iterator[str]:
    yield "# Settings"
    yield from paragraph(
        f"""Strongest first: a flag of the command, the variable `{PREFIX}…`, `redrive.toml` (or the file that
        `--config` or `{PREFIX}CONFIG` names), the default. An unknown name, a value out of bounds and two values that
        contradict each other stop the program with a sentence that says which, from where, and what to do. The word
        `none` stands for no value. In the file the names are those of the first column: `lease_seconds = 60`."""
    )
    yield ""
    yield from table(
        ("setting", "variable", "read by", "unit", "default", "bounds", "meaning"),
        [_setting(setting) for setting in TABLE.values()],
    )
    yield from paragraph(
        f"""Checked together: `lease_seconds` is at least {HEARTBEATS_PER_LEASE} times `heartbeat_seconds`. A relay
        warns when `lease_seconds` + `reap_every_seconds` is above {HEALS_WITHIN_SECONDS:g}: messages of a crashed relay
        may wait that long; and when `lease_seconds` is below {LEASE_SECONDS_ADVISED:g}: a process that pauses for
        longer has its messages sent again. Such short leases are meant for tests."""
    )
    yield from paragraph(
        """`App.running(settings=…)` takes every setting that a relay reads: [Use it with
        FastAPI](../how-to/use-with-fastapi.md)."""
    )


def _setting(setting: Setting) -> tuple[str, ...]:
    default = "none" if setting.default is None else str(setting.default)
    named = (f"`{setting.name}`", f"`{setting.variable}`", setting.read_by)
    return *named, setting.unit, default, setting.bounds, setting.help


# errors


def errors_page() -> Iterator[str]:
    yield "# Errors"
    yield from paragraph(
        """What Redrive itself raises. Each class has a stable `code`; a command with `--json` prints it on stderr
        (`urn:redrive:error:CODE`). What a destination says is no error of ours: see [answers](answers.md). The number
        is the exit code of a command that ends with it."""
    )
    kinds = list(_all_below(errors.RedriveError))
    for who in (CALLER, OPERATOR, NOBODY):
        yield from ("", f"## {who}")
        for kind in (kind for kind in kinds if _who_must_act(kind) == who):
            place = f"`{kind.__module__}.{kind.__qualname__}`"
            yield from ("", f"### {kind.code}")
            yield from paragraph(
                f"{place}, exit code {int(exit_of(kind.__new__(kind)))}. {reference_api.sentence(kind)}"
            )


def _who_must_act(kind: type[errors.RedriveError]) -> str:
    if issubclass(kind, errors.UsageError):
        return CALLER
    return OPERATOR if issubclass(kind, errors.OperatorError) else NOBODY


def _all_below(kind: type[errors.RedriveError]) -> Iterator[type[errors.RedriveError]]:
    """Our own classes: the public ones, and those of the embedded server."""
    for below in kind.__subclasses__():
        if below.__module__ in {errors.__name__, EmbeddedError.__module__}:
            yield below
            yield from _all_below(below)


# commands


def cli_page() -> Iterator[str]:
    yield "# Commands"
    yield from paragraph(
        """Data go to stdout, everything else to stderr. `--json` prints one document with the name of its schema. Exit
        codes are the same for every command; they are listed first."""
    )
    yield ""
    for name, command in _commands(cli, "redrive"):
        yield from (f"## {name}", "", "```text")
        yield from _help(name, command)
        yield from ("```", "")


def _commands(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    """The command and those below it, those of the systems too."""
    yield name, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        below = command.list_commands(context)
        for one in below:
            found = command.get_command(context, one)
            assert found is not None
            yield from _commands(found, f"{name} {one}")


def _help(name: str, command: click.Command) -> list[str]:
    shown = _OursOnly.of(command) if isinstance(command, Commands) else command
    context = click.Context(shown, info_name=name, terminal_width=HELP_COLUMNS, help_option_names=["-h", "--help"])
    return [line.rstrip() for line in shown.get_help(context).splitlines()]


class _OursOnly(Commands):
    """The same group without the commands of installed systems."""

    @classmethod
    def of(cls, group: Commands) -> click.Command:
        return cls(name=group.name, help=group.help, epilog=group.epilog, params=group.params)

    def _systems(self) -> dict[str, click.Command]:
        return {}


def main(arguments: Sequence[str]) -> None:
    made = pages()
    if list(arguments) != ["--write"]:
        print("\n".join(made.values()))
        return
    PAGES.mkdir(parents=True, exist_ok=True)
    for name, text in made.items():
        (PAGES / name).write_text(text, encoding="utf-8")
    django_migration.write()


if __name__ == "__main__":
    main(sys.argv[1:])
