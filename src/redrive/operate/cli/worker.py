"""`redrive worker MODULE:APP`: consumes from brokers what an app declares, until it is stopped."""

from typing import Any

import click

from redrive.consume.process import WorkerProcess, run_worker
from redrive.consume.sessions import THREADS
from redrive.events import Events
from redrive.operate import logs
from redrive.operate.cli.context import database_of, example, load_settings, setting_option, taking
from redrive.operate.cli.relay import run_to_end
from redrive.operate.observe.observing import observed_worker
from redrive.operate.operations import explained
from redrive.relay.load_app import load_app
from redrive.settings import Settings
from redrive.store.migrations import migrate


@click.command("worker", epilog=example("redrive worker shop:app", "redrive worker shop:app --consumer billing"))
@click.argument("app_spec", metavar="MODULE:APP")
@click.option("--consumer", "only", multiple=True, metavar="NAME", help="Run just this one; may be repeated.")
@click.option("--name", default="", help="Shown by `redrive status`. Default: host and process id.")
@taking(*map(setting_option, ("dsn", "stop_seconds", "metrics_listen", "log_format", "log_level")))
@click.pass_context
def command(context: click.Context, /, app_spec: str, only: tuple[str, ...], name: str, **flags: Any) -> None:
    """Consume the messages of brokers with the consumers that an app declares.

    A message is acknowledged after the commit of its effect. What its consumer cannot process becomes a message of the
    engine: run `redrive relay` too. SIGTERM or Ctrl-C stops gracefully: what runs ends, the rest goes back.
    """
    settings = load_settings(context, **flags)
    app = load_app(app_spec)
    dsn = database_of(settings)
    with explained(dsn):
        migrate.require_current(dsn)
        logs.configure(settings.log_format, settings.log_level)
        events = Events()
        logs.subscribe(events)
        process = WorkerProcess(
            app=app,
            dsn=dsn,
            only=only,
            stop_seconds=settings.stop_seconds,
            name=name,
            heartbeat_seconds=settings.heartbeat_seconds,
        )
        run_to_end(_observed(process, settings, events), threads=THREADS)


async def _observed(process: WorkerProcess, settings: Settings, events: Events) -> None:
    async with observed_worker(events, process, settings):
        await run_worker(process, events=events)
