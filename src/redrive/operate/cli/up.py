"""`redrive up [MODULE:APP]`: everything in one process: database, schema, relay, duties, console."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import click

from redrive.operate import embedded
from redrive.operate.cli import console, output
from redrive.operate.cli.context import example, load_settings, setting_option
from redrive.operate.cli.relay import deliver, load, relay_options
from redrive.operate.installed import installed_sets
from redrive.operate.operations import explained
from redrive.settings import Settings
from redrive.store.migrations import migrate


@click.command("up", epilog=example("redrive up shop:app", "redrive up shop:app --data-dir ./data"))
@setting_option("data_dir")
@click.option("--console/--no-console", "with_console", default=True, show_default=True, help="Serve the console too.")
@relay_options
@click.pass_context
def command(
    context: click.Context, /, app_spec: str | None, only: tuple[str, ...], name: str, with_console: bool, **flags: Any
) -> None:
    """Start all that is needed: PostgreSQL (unless a DSN is given), the schema, a relay, and the console.

    While it runs, the other commands find its database by themselves if they are given the same data directory. The
    console's address, with a link that is good for one login, is printed.
    """
    settings = load_settings(context, **flags)
    app, spec = load(context, app_spec)
    with _database(settings) as dsn, explained(dsn):
        migrate.upgrade(dsn, sets=installed_sets(), progress=output.note)
        beside = partial(console.beside, settings, dsn) if with_console else nullcontext
        deliver(settings, dsn, app, spec, only=only, name=name, beside=beside)


@contextmanager
def _database(settings: Settings) -> Iterator[str]:
    if settings.dsn is not None:
        yield settings.dsn
        return
    with embedded.start(settings.data_dir or embedded.default_data_dir()) as server:
        output.note(f"PostgreSQL {server.major} runs on {server.data_dir}.")
        output.note(f"Its DSN: {server.dsn}")
        yield server.dsn
