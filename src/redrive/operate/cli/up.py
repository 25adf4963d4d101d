"""`redrive up [MODULE:APP]`: everything in one process: database, broker, schema, relay, worker, duties, console."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from redrive.app import App
from redrive.consume.process import WorkerProcess, run_worker
from redrive.events import Events
from redrive.operate import embedded
from redrive.operate.cli import console, output
from redrive.operate.cli.context import example, load_settings, setting_option
from redrive.operate.cli.relay import deliver, load, relay_options
from redrive.operate.embedded import nats_server
from redrive.operate.installed import installed_sets
from redrive.operate.operations import explained
from redrive.relay.process import RelayProcess, run_relay, stop_on_signals
from redrive.settings import Settings
from redrive.store.migrations import migrate

NATS_VARIABLE: Final = "NATS_URL"  # the one that NATS's own tools read


@click.command(
    "up",
    epilog=example("redrive up shop:app", "redrive up shop:app --data-dir ./data", "redrive up shop:app --broker nats"),
)
@setting_option("data_dir")
@click.option("--console/--no-console", "with_console", default=True, show_default=True, help="Serve the console too.")
@click.option(
    "--broker",
    type=click.Choice(["nats"]),
    help="Start this broker too, with its data beside those of PostgreSQL; the app finds its URL in NATS_URL.",
)
@relay_options
@click.pass_context
def command(
    context: click.Context,
    /,
    app_spec: str | None,
    only: tuple[str, ...],
    name: str,
    with_console: bool,
    broker: str | None,
    **flags: Any,
) -> None:
    """Start all that is needed: PostgreSQL (unless a DSN is given), the schema, a relay, and the console.

    A worker runs too if the app declares consumers. While it runs, the other commands find its database by themselves
    if they are given the same data directory. The console's address, with a link that is good for one login, is
    printed. Ctrl-C ends all of it.
    """
    settings = load_settings(context, **flags)
    with nullcontext() if broker is None else _nats(settings):
        app, spec = load(context, app_spec)
        with _database(settings) as dsn, explained(dsn):
            migrate.upgrade(dsn, sets=installed_sets(), progress=output.note)
            beside = partial(console.beside, settings, dsn) if with_console else nullcontext
            run = partial(_run, _consuming(app, only), settings)
            deliver(settings, dsn, app, spec, only=only, name=name, beside=beside, run=run)


@contextmanager
def _database(settings: Settings) -> Iterator[str]:
    if settings.dsn is not None:
        yield settings.dsn
        return
    with embedded.start(_data_dir(settings)) as server:
        output.note(f"PostgreSQL {server.major} runs on {server.data_dir}.")
        output.note(f"Its DSN: {server.dsn}")
        yield server.dsn


@contextmanager
def _nats(settings: Settings) -> Iterator[None]:
    """Before the app is loaded, which reads the variable, as processes that run suspects do."""
    place = _data_dir(settings)
    with nats_server.start(place.with_name(f"{place.name}.nats")) as server:
        os.environ[NATS_VARIABLE] = server.url
        output.note(f"NATS runs on {server.data_dir}.")
        output.note(f"Its URL ({NATS_VARIABLE}): {server.url}")
        yield


def _data_dir(settings: Settings) -> Path:
    return settings.data_dir or embedded.default_data_dir()


def _consuming(app: App, only: tuple[str, ...]) -> list[str]:
    return [name for name in app.consumers if not only or name in only]


async def _run(consumers: list[str], settings: Settings, process: RelayProcess, /, *, events: Events) -> None:
    """The relay, and a worker beside it. One that ends ends the other, and a failure is raised."""
    if not consumers:
        await run_relay(process, events=events)
        return
    worker = WorkerProcess(app=process.app, dsn=process.dsn, only=consumers, stop_seconds=settings.stop_seconds)
    running = [
        asyncio.create_task(run_relay(process, events=events, signals=False)),
        asyncio.create_task(run_worker(worker, events=events, signals=False)),
    ]

    def stop() -> None:
        for task in running:
            if not task.cancelling():  # once: it stops gracefully, and a second time would end it at once
                task.cancel()

    stop_on_signals(stop, running)
    await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
    stop()
    for result in await asyncio.gather(*running, return_exceptions=True):
        if isinstance(result, Exception):
            raise result
