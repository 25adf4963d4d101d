"""`redrive prove`: our guarantees, run by you, with real processes, here and now."""

from __future__ import annotations

import secrets
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from inspect import getdoc
from typing import Any, NoReturn

import click

from redrive.operate.cli import output
from redrive.operate.cli.context import example
from redrive.operate.cli.exit_codes import Exit
from redrive.operate.cli.histories import history_options
from redrive.operate.cli.progress import bars
from redrive.system import System, discover

SEEDS = 1_000_000
HISTORIES = 100  # of the engine, at scale 1


class Proofs(click.Group):
    """Ours, and those of the installed systems."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *_systems()])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        own = super().get_command(ctx, cmd_name)
        systems = _systems()
        return own or (_of_system(systems[cmd_name]) if cmd_name in systems else None)


@click.group("prove", cls=Proofs)
def command() -> None:
    """Try to break it, and see that nothing is lost, doubled or taken back."""


def _systems() -> dict[str, System]:
    return {name: one for name, one in discover().items() if one.prove is not None}


def _options(body: Callable[..., None]) -> Callable[..., None]:
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of the report."),
        click.option("--dsn", metavar="DSN", help="A server to make a database on. Default: a server of its own."),
        click.option(
            "--scale",
            type=click.FloatRange(0.01, 1000),
            default=1.0,
            show_default=True,
            help="How much of it: 1 is some minutes, 0.05 is about one.",
        ),
        click.option(
            "--seed", type=click.IntRange(0), help="What is drawn at random; the same seed draws the same faults."
        ),
    ):
        body = option(body)
    return body


def _history_options(body: Callable[..., None]) -> Callable[..., None]:
    for option in reversed(history_options(HISTORIES)):
        body = option(body)
    return body


@command.command(
    "engine",
    epilog=example(
        "redrive prove engine",
        "redrive prove engine --seed 7 --scale 0.05 --json",
        "redrive prove engine --history 4711",
    ),
)
@_history_options
@_options
def engine(seed: int | None, scale: float, dsn: str | None, as_json: bool, **options: Any) -> None:
    """Kill relays at every step boundary, freeze them, stop the database, lose replies; then check every message.

    Then random histories: producers that hold transactions open, every act of people, hostile handlers, a database that
    is away or refuses to write, judged by the log of the destination. One that breaks a promise is printed as a script.

    Exit code 1 means that a guarantee was broken: the report names it, with the ids of the messages.
    """
    from redrive.prove.engine import prove  # what it needs is loaded only when it is used

    report = _run(partial(prove, **options), seed=seed, scale=scale, dsn=dsn)
    if as_json:
        output.document("prove", report.document())
    _end(report, as_json=as_json)


@command.command("desk", epilog=example("redrive prove desk", "redrive prove desk --seed 7 --scale 0.05 --json"))
@_options
def desk(seed: int | None, scale: float, dsn: str | None, as_json: bool) -> None:
    """Let thousands of messages fail for four causes, and take them back while relays are killed.

    Four groups; edited, validated, a few first, then the rest at a rate: each is sent once more and no more, in the
    order of its key; the audit verifies, and one changed row is found. Exit code 1 means that one of these is not so.
    """
    from redrive.prove.desk import prove

    report = _run(prove, seed=seed, scale=scale, dsn=dsn)
    if as_json:
        output.document("prove_desk", report.document())
    _end(report, as_json=as_json)


@command.command(
    "isolation", epilog=example("redrive prove isolation", "redrive prove isolation open-transaction --json")
)
@click.argument("cases", nargs=-1, metavar="[CASE]...")
@click.option("--dsn", metavar="DSN", help="A server to make databases on. Default: a server of its own.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of the report.")
def isolation(cases: Sequence[str], dsn: str | None, as_json: bool) -> None:
    """Make trouble for one destination, and measure what the others notice of it; each figure beside its bound.

    Without a CASE all of them are run. Exit code 1 means that a figure is beyond its bound: figures in milliseconds
    need a machine with a core to spare.
    """
    from redrive.prove.isolation.cases import CASES
    from redrive.prove.isolation.prove import prove

    unknown = [name for name in cases if name not in CASES]
    if unknown:
        raise click.UsageError(f"There is no case {unknown[0]!r}; there are {', '.join(CASES)}.")
    with _ended_by_sigterm(), bars() as progress:
        report = prove([CASES[name] for name in cases or CASES], dsn=dsn, progress=progress)
    if as_json:
        output.document("prove_isolation", report.document())
    _end(report, as_json=as_json)


def _of_system(system: System) -> click.Command:
    """What it promises, proven by what it brings; its first words are the help."""
    assert system.prove is not None
    prove = system.prove

    def body(seed: int | None, scale: float, dsn: str | None, as_json: bool, **options: Any) -> None:
        report = _run(partial(prove, **options), seed=seed, scale=scale, dsn=dsn)
        if as_json:
            output.document("prove_system", {"system": system.name, **report.document()})
        _end(report, as_json=as_json)

    examples = [f"redrive prove {system.name}", f"redrive prove {system.name} --seed 7 --scale 0.05 --json"]
    taking: Callable[..., None] = body
    for option in reversed(system.prove_options):
        taking = option(taking)
    return click.command(system.name, help=getdoc(prove), epilog=example(*examples))(_options(taking))


def _run(prove: Callable[..., Any], *, seed: int | None, scale: float, dsn: str | None) -> Any:
    chosen = secrets.randbelow(SEEDS) if seed is None else seed
    output.note(f"Seed {chosen}. Ctrl-C ends it and takes everything away again.")
    with _ended_by_sigterm(), bars() as progress:
        return prove(seed=chosen, scale=scale, dsn=dsn, progress=progress)


def _end(report: Any, *, as_json: bool) -> None:
    """The report for people, unless a program has it; and the exit code."""
    if not as_json:
        for line in report.lines():
            click.echo(line)
    if not report.ok:
        raise click.exceptions.Exit(Exit.FAILED)


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """As by Ctrl-C: processes and directories are taken away."""

    def end(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
