"""What holds for every command: help, streams, colours, harmless output, problems as objects."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest

from redrive.errors import (
    ActRefused,
    InvalidValue,
    NotAllowed,
    NotFound,
    OperatorError,
    RedriveError,
    SchemaError,
    SettingsError,
    Unreachable,
)
from redrive.operate.cli.exit_codes import Exit, exit_of, problem
from redrive.operate.cli.main import NOUNS, cli
from redrive.ports import TransientFailure
from tests.cli.conftest import NOBODY, NOWHERE, Redrive, Shop
from tests.support import messages as m

RED = "\x1b["


def leaves(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command that is not a group, with its words."""
    if not isinstance(command, click.Group):
        yield path, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None, name
        yield from leaves(found, (*path, name))


LEAVES = dict(leaves(cli))
ACTS = {
    path
    for path in LEAVES
    if path[-1] in {"cancel", "requeue", "discard", "confirm", "deny", "repair", "pause", "resume", "skip"}
}


def process(*arguments: object, dsn: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command line as a process of its own."""
    given = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment}
    command = [sys.executable, "-m", "redrive", *map(str, arguments), "--dsn", dsn]
    return subprocess.run(command, capture_output=True, text=True, env=given, timeout=60)


def on_a_terminal(*arguments: object, dsn: str, **environment: str) -> str:
    """What the command prints on a terminal."""
    ours, theirs = pty.openpty()
    given = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TERM": "xterm", "COLUMNS": "120", **environment}
    command = [sys.executable, "-m", "redrive", *map(str, arguments), "--dsn", dsn]
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, stdin=theirs, env=given) as running:
        os.close(theirs)
        said = bytearray()
        try:
            while piece := os.read(ours, 65536):
                said += piece
        except OSError:  # the other end is closed
            pass
        running.wait(timeout=60)
    os.close(ours)
    return said.decode()


@pytest.mark.req("G-21")
@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_every_command_explains_itself_with_an_example_that_can_be_parsed(path: tuple[str, ...]) -> None:
    command = LEAVES[path]
    assert command.get_short_help_str()
    assert command.epilog
    examples = [line.strip() for line in command.epilog.splitlines() if line.strip().startswith("redrive ")]
    assert examples
    assert all(line.startswith(f"redrive {' '.join(path)}") for line in examples)
    options = {name for parameter in command.params for name in parameter.opts}
    used = {word for line in examples for word in line.split() if word.startswith("--")}
    assert used <= options, used - options


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_every_option_is_explained(path: tuple[str, ...]) -> None:
    for parameter in LEAVES[path].params:
        if isinstance(parameter, click.Option):
            assert parameter.help, parameter.name


# They run until they are stopped, or print no data.
RUNNING = {("relay",), ("worker",), ("up",), ("demo",), ("completion",), ("console",)} | {
    ("evidence", "demo"),
    ("payments", "rail"),
    ("payments", "demo"),
    ("reviews", "demo"),
    ("tenant", "demo"),
}


@pytest.mark.parametrize(
    "path", [path for path in LEAVES if path[:1] not in RUNNING and path not in RUNNING], ids=" ".join
)
def test_every_command_has_json_and_dsn(path: tuple[str, ...]) -> None:
    assert {"as_json", "dsn"} <= {parameter.name for parameter in LEAVES[path].params}


@pytest.mark.parametrize("path", sorted(ACTS), ids=" ".join)
def test_every_act_wants_a_reason_and_offers_a_dry_run(path: tuple[str, ...]) -> None:
    options = {parameter.name: parameter for parameter in LEAVES[path].params}
    assert options["reason"].required
    assert {"actor", "dry_run"} <= options.keys()


def test_every_noun_is_in_the_help(nowhere: Redrive) -> None:
    result = nowhere.runner.invoke(cli, ["--help"])
    assert result.exit_code == 0
    assert all(f"  {noun} " in result.stdout for noun in NOUNS)
    assert "7 database unreachable" in result.stdout


EXITS = {
    InvalidValue("x"): Exit.USAGE,
    SettingsError("x"): Exit.USAGE,
    click.UsageError("x"): Exit.USAGE,
    NotFound("x"): Exit.NOT_FOUND,
    NotAllowed("x"): Exit.NOT_ALLOWED,
    ActRefused("x"): Exit.REFUSED,
    SchemaError("x"): Exit.REFUSED,
    Unreachable("x"): Exit.UNREACHABLE,
    TransientFailure("x"): Exit.UNREACHABLE,
    OperatorError("x"): Exit.FAILED,
    RedriveError("x"): Exit.FAILED,
    RuntimeError("x"): Exit.FAILED,
    KeyboardInterrupt(): Exit.INTERRUPTED,
}


@pytest.mark.parametrize("error", EXITS, ids=lambda error: type(error).__name__)
def test_every_error_has_its_exit_code_and_is_a_problem_object(error: BaseException) -> None:
    assert exit_of(error) is EXITS[error]
    said = problem(error)
    assert list(said) == ["type", "title", "detail", "code", "next"]
    assert said["type"] == f"urn:redrive:error:{said['code']}"
    assert all(isinstance(value, str) for value in said.values())


@pytest.mark.req("G-15")
def test_the_text_of_an_unforeseen_error_is_not_repeated() -> None:
    assert "4711" not in problem(RuntimeError("card 4711"))["detail"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["messages", "show", NOBODY], "NOT_FOUND"),
        (["messages", "show"], "USAGE"),
        (["messages", "list", "--state", "lost"], "USAGE"),
        (["messages", "cancel", NOBODY], "USAGE"),
    ],
)
def test_under_json_an_error_is_one_object_on_stderr(look: Redrive, arguments: list[str], code: str) -> None:
    result = look(*arguments, "--json")
    assert result.stdout == "" or result.exit_code == 3
    said = json.loads(result.stderr)
    assert said["code"] == code
    assert said["next"]


def test_no_database_at_all_is_wrong_usage_with_the_way_out(nowhere: Redrive) -> None:
    result = nowhere.runner.invoke(cli, ["status"])
    assert result.exit_code == 2
    assert "REDRIVE_DSN" in result.stderr


@pytest.mark.parametrize("dsn", ["postgresql://anna:geheim@[::1", "geheim", "host=x geheim"])
def test_a_dsn_that_cannot_be_read_is_not_repeated(nowhere: Redrive, dsn: str) -> None:
    result = nowhere("status", dsn=dsn)
    assert result.exit_code == 2
    assert "geheim" not in result.output


def test_the_dsn_may_stand_before_the_noun_and_the_last_one_counts(redrive: Redrive) -> None:
    assert redrive.runner.invoke(cli, ["--dsn", redrive.dsn, "db", "check"]).exit_code == 0
    assert redrive.runner.invoke(cli, ["--dsn", NOWHERE, "db", "check", "--dsn", redrive.dsn]).exit_code == 0


def test_a_pipe_gets_plain_rows_and_only_data(stock: Shop) -> None:
    result = process("messages", "list", "--limit", "2", dsn=stock.dsn)
    assert result.returncode == 0
    assert len(result.stdout.splitlines()) == 3
    assert RED not in result.stdout + result.stderr
    assert "─" not in result.stdout
    assert result.stderr.startswith("More: ")


@pytest.mark.parametrize("arguments", ["messages list", "messages list --json", "db sql"])
def test_a_reader_that_leaves_early_is_no_error(stock: Shop, arguments: str) -> None:
    given = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = f"'{sys.executable}' -m redrive {arguments} --dsn '{stock.dsn}' | true; exit ${{PIPESTATUS[0]}}"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=given, timeout=60)
    assert (result.returncode, result.stderr) == (0, "")


def test_a_terminal_gets_colours_unless_they_are_declined(stock: Shop) -> None:
    assert RED in on_a_terminal("dead", "list", dsn=stock.dsn)
    plain = on_a_terminal("dead", "list", dsn=stock.dsn, NO_COLOR="1")
    assert f"{RED}31" not in plain
    assert str(stock["dead"]) in plain


@pytest.mark.parametrize("columns", ["60", "120"])
def test_an_id_is_never_cut_however_narrow_the_terminal(stock: Shop, columns: str) -> None:
    assert str(stock["dead"]) in on_a_terminal("dead", "list", dsn=stock.dsn, NO_COLOR="1", COLUMNS=columns)


@pytest.mark.req("G-19")
def test_what_comes_from_a_message_cannot_drive_the_terminal(redrive: Redrive, shop: Shop) -> None:
    evil = "a\x1b[31m\x9b2J\r\nb\u202ec"
    message = shop.call(lambda store: m.enqueue(store, now=shop.now, key=evil, kind="[bold]x[/bold]", destination=evil))
    for arguments in (["messages", "list"], ["messages", "show", message], ["status"], ["destinations", "list"]):
        shown = redrive(*arguments).stdout
        assert not set(shown) & set("\x1b\x9b\r\u202e"), arguments
        assert "a\N{REPLACEMENT CHARACTER}[31m" in shown
    assert "[bold]x[/bold]" in redrive("messages", "list").stdout
    assert redrive.json("messages", "show", message)["view"]["key"] == evil


@pytest.mark.req("G-21")
def test_how_far_a_bulk_act_is_shows_on_a_terminal_and_nowhere_else(shop: Shop) -> None:
    ids = [shop["pending"], shop["leased"]]
    arguments = ("messages", "cancel", *ids, "--reason", "test", "--actor", "ada")
    assert "2/2" in on_a_terminal(*arguments, dsn=shop.dsn)
    quiet = process(*arguments, dsn=shop.dsn)
    assert "/2" not in quiet.stderr + quiet.stdout
