"""`redrive prove`: our guarantees, run by you, with real processes, here and now."""

import secrets
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import getdoc
from typing import Any, Final, NoReturn

import click

from redrive.errors import SettingsError
from redrive.operate.cli import output
from redrive.operate.cli.context import example, taking
from redrive.operate.cli.exit_codes import Exit
from redrive.operate.cli.histories import history_options
from redrive.operate.cli.progress import bars
from redrive.system import System, discover

SEEDS = 1_000_000
HISTORIES = 100  # of the engine, at scale 1
BROKERS: Final = ("nats", "redis", "rabbitmq", "kafka")


class Proofs(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *_systems()])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        own = super().get_command(ctx, cmd_name)
        systems = _systems()
        return own or (_of_system(systems[cmd_name]) if cmd_name in systems else None)


@click.group("prove", cls=Proofs)
def command() -> None:
    """Try to break Redrive, and see that no message is lost, doubled or taken back."""


def _systems() -> dict[str, System]:
    return {name: one for name, one in discover().items() if one.prove is not None}


_JSON: Final = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of the report.")
_DSN: Final = click.option("--dsn", metavar="DSN", help="A server to make databases on. Default: a server of its own.")
_OPTIONS: Final = (
    click.option(
        "--seed", type=click.IntRange(0), help="What is drawn at random; the same seed draws the same faults."
    ),
    click.option(
        "--scale",
        type=click.FloatRange(0.01, 1000),
        default=1.0,
        show_default=True,
        help="How much of it: 1 is some minutes, 0.05 is about one.",
    ),
    _DSN,
    _JSON,
)


@command.command(
    "engine",
    epilog=example(
        "redrive prove engine",
        "redrive prove engine --seed 7 --scale 0.05 --json",
        "redrive prove engine --history 4711",
    ),
)
@taking(*history_options(HISTORIES), *_OPTIONS)
def engine(as_json: bool, **options: Any) -> None:
    """Kill relays at every step boundary, freeze them, stop the database, lose replies; then check every message.

    Then random histories: producers that hold transactions open, every act of people, hostile handlers, a database that
    is away or refuses to write, judged by the log of the destination. One that breaks a promise is printed as a script.

    Exit code 1 means that a guarantee was broken: the report names it, with the ids of the messages.
    """
    from redrive.prove.engine import prove  # what it needs is loaded only when it is used

    _prove("prove", prove, as_json=as_json, **options)


@command.command("desk", epilog=example("redrive prove desk", "redrive prove desk --seed 7 --scale 0.05 --json"))
@taking(*_OPTIONS)
def desk(as_json: bool, **options: Any) -> None:
    """Let thousands of messages fail for four causes, and take them back while relays are killed.

    Four groups; edited, validated, a few first, then the rest at a rate: each is sent once more and no more, in the
    order of its key; the audit verifies, and one changed row is found. Exit code 1 means that one of these is not so.
    """
    from redrive.prove.desk import prove

    _prove("prove_desk", prove, as_json=as_json, **options)


@command.command(
    "brokers",
    epilog=example(
        "redrive prove brokers",
        "redrive prove brokers --broker nats --scale 0.05",
        "redrive prove brokers --broker redis --broker rabbitmq --seed 7 --json",
    ),
)
@click.option(
    "--broker",
    type=click.Choice(BROKERS),
    multiple=True,
    help="With this broker; may be repeated. Default: all that can run here.",
)
@taking(*_OPTIONS)
def brokers(broker: Sequence[str], as_json: bool, **options: Any) -> None:
    """Put a real broker between two services with a database each, and break every connection between them.

    20,000 messages (at scale 1, for each broker) are published while connections are cut between publish and confirm,
    relays are killed and the broker is stopped and killed; then `redrive worker` consumes them while it is killed 30
    times. The journals of the producers and the rows that the consumer's transactions left must agree: nothing lost,
    each effect once, in the order of its key; the broker has everything acknowledged, and no engine has anything open.

    Needs redrive[prove]. NATS, Valkey (as Redis), Debian's RabbitMQ and librdkafka's mock of Kafka are started on free
    ports of loopback. The mock forgets everything when it is stopped, so it is only cut off.

    Exit code 1 means that a promise was broken: the report names the messages.
    """
    from redrive.prove.brokers.prove import prove, runnable

    names, left_out = runnable(broker or BROKERS)
    for why in left_out:
        if broker:
            raise SettingsError(why)
        output.note(why)
    _prove("prove_brokers", prove, as_json=as_json, brokers=names, **options)


@command.command(
    "isolation", epilog=example("redrive prove isolation", "redrive prove isolation open-transaction --json")
)
@click.argument("cases", nargs=-1, metavar="[CASE]...")
@_DSN
@_JSON
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
    _end("prove_isolation", report, as_json=as_json)


def _of_system(system: System) -> click.Command:
    prove = system.prove
    assert prove is not None

    def body(as_json: bool, **options: Any) -> None:
        _prove("prove_system", prove, as_json=as_json, more={"system": system.name}, **options)

    examples = [f"redrive prove {system.name}", f"redrive prove {system.name} --seed 7 --scale 0.05 --json"]
    made = click.command(system.name, help=getdoc(prove), epilog=example(*examples))
    return made(taking(*_OPTIONS, *system.prove_options)(body))


def _prove(
    name: str,
    prove: Callable[..., Any],
    *,
    seed: int | None,
    as_json: bool,
    more: Mapping[str, object] | None = None,
    **options: Any,
) -> None:
    chosen = secrets.randbelow(SEEDS) if seed is None else seed
    output.note(f"Seed {chosen}. Ctrl-C ends it and takes everything away again.")
    with _ended_by_sigterm(), bars() as progress:
        report = prove(seed=chosen, progress=progress, **options)
    _end(name, report, as_json=as_json, more=more)


def _end(name: str, report: Any, *, as_json: bool, more: Mapping[str, object] | None = None) -> None:
    if as_json:
        output.document(name, {**(more or {}), **report.document()})
    else:
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
