"""`redrive bench`: how fast it is here, beside what bare SQL does here."""

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import click
from rich.table import Table

from redrive.bench.broker_workloads import BROKER_WORKLOADS
from redrive.bench.chart import svg
from redrive.bench.run import Measured, measure, server_facts
from redrive.bench.workloads import WORKLOADS, Workload
from redrive.errors import RedriveError
from redrive.operate import embedded
from redrive.operate.cli import output
from redrive.operate.cli.context import example
from redrive.operate.cli.progress import bars

ALL: Final = (*WORKLOADS, *BROKER_WORKLOADS)
NAMES: Final = [workload.name for workload in ALL]
SERVER_SETTINGS: Final = {"shared_buffers": "1GB", "max_wal_size": "4GB"}


@click.command("bench", epilog=example("redrive bench", "redrive bench W3 --repeat 5 --chart drain.svg"))
@click.argument("workloads", nargs=-1, type=click.Choice(NAMES))
@click.option("--repeat", type=click.IntRange(1, 50), default=3, show_default=True, help="Runs; the median counts.")
@click.option("--scale", type=click.FloatRange(0.01, 10), default=1.0, show_default=True, help="Share of the messages.")
@click.option("--dsn", metavar="DSN", help="A server on which databases may be made. Default: an embedded one.")
@click.option("--chart", type=click.Path(path_type=Path, dir_okay=False), help="Also write the ratios as an SVG here.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def command(
    workloads: Sequence[str], repeat: int, scale: float, dsn: str | None, chart: Path | None, as_json: bool
) -> None:
    """Measure enqueueing, draining, publishing and consuming, each beside its own reference, and print the ratios.

    Makes databases named bench_* and drops them again. Compare only what one run printed: machines are noisy.
    """
    wanted = [workload for workload in ALL if (workload.name in workloads if workloads else _can_run(workload))]
    for workload in wanted:
        workload.require()
    with ExitStack() as stack:
        server = dsn or stack.enter_context(_server(stack)).dsn
        facts = server_facts(server)
        with bars() as tell:
            measured = measure(server, wanted, repeat=repeat, scale=scale, tell=tell)
    if chart is not None:
        chart.write_text(svg(measured, caption=f"Redrive on PostgreSQL {facts['server_version']}"), encoding="utf-8")
    if as_json:
        results = [one.as_json() for one in measured]
        output.document("bench", {"server": facts, "repeat": repeat, "results": results})
    else:
        output.stdout().print(_table(measured, facts["server_version"]))


def _can_run(workload: Workload) -> bool:
    """What is not installed is left out, and said."""
    try:
        workload.require()
    except RedriveError as error:
        output.note(f"{workload.name} is left out: {error}")
        return False
    return True


def _server(stack: ExitStack) -> embedded.Server:
    home = stack.enter_context(tempfile.TemporaryDirectory(prefix="redrive-bench-", ignore_cleanup_errors=True))
    Path(home).chmod(0o755)
    return embedded.start(Path(home) / "postgres", settings=SERVER_SETTINGS)


def _table(measured: Sequence[Measured], version: str) -> Table:
    table = Table(title=f"PostgreSQL {version}; medians", title_justify="left", box=None)
    for title in ("", "work", "reference", "ours", "ratio", "lowest–highest", "aim"):
        table.add_column(title, justify="left" if title in ("", "work") else "right")
    for one in measured:
        work = one.workload
        table.add_row(
            work.name,
            work.title,
            work.shown(one.rates[work.reference]),
            work.shown(one.rates[work.figure]),
            f"{one.ratio:.2f}",
            f"{one.ratio_low:.2f}–{one.ratio_high:.2f}",
            f"{'≤ ' if work.unit == 'ms' else ''}{work.aim:.2f}",
        )
    return table
