"""`redrive up [MODULE:APP]`: everything in one process: database, schema, relay, duties."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from redrive.operate import embedded
from redrive.operate.cli import output
from redrive.operate.cli.context import example
from redrive.operate.cli.relay import deliver, load, relay_options, relay_settings
from redrive.operate.installed import installed_sets
from redrive.operate.operations import explained
from redrive.operate.settings import Settings
from redrive.store import migrate


@click.command("up", epilog=example("redrive up shop:app", "redrive up shop:app --data-dir ./data"))
@click.option("--data-dir", help="Where the embedded server keeps its data.")
@relay_options
@click.pass_context
def command(context: click.Context, /, app_spec: str | None, only: tuple[str, ...], name: str, **flags: Any) -> None:
    """Start all that is needed: PostgreSQL (unless a DSN is given), the schema, and a relay.

    While it runs, the other commands find its database by themselves if they are given the same data directory.
    """
    settings = relay_settings(context, **flags)
    app, spec = load(context, app_spec)
    with _database(settings) as dsn, explained(dsn):
        migrate.upgrade(dsn, sets=installed_sets(), progress=output.note)
        deliver(settings, dsn, app, spec, only=only, name=name)


@contextmanager
def _database(settings: Settings) -> Iterator[str]:
    """The one that was named, or an embedded server for as long as we run."""
    if settings.dsn is not None:
        yield settings.dsn
        return
    with embedded.start(settings.data_dir or embedded.default_data_dir()) as server:
        output.note(f"PostgreSQL {server.major} runs on {server.data_dir}.")
        output.note(f"Its DSN: {server.dsn}")
        yield server.dsn
