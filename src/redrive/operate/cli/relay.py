"""`redrive relay [MODULE:APP]`: delivers what waits, until it is stopped."""

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from typing import Any, Final, Protocol

import click

from redrive.app import App
from redrive.events import Events
from redrive.operate import logs, toml_destinations
from redrive.operate.cli.context import database_of, example, load_settings, setting_option, taking
from redrive.operate.observe.observing import observed
from redrive.operate.operations import explained
from redrive.relay.load_app import load_app
from redrive.relay.process import RelayProcess, run_relay
from redrive.settings import TABLE, Settings
from redrive.store.migrations import migrate
from redrive.transports.functions import THREADS

# The app and the settings that are often changed; `redrive up` has them too.
relay_options: Final = taking(
    click.argument("app_spec", metavar="[MODULE:APP]", required=False),
    click.option("--only", multiple=True, metavar="DESTINATION", help="Handle just this one; may be repeated."),
    click.option("--name", default="", help="Shown by `redrive status`. Default: host and process id."),
    setting_option("dsn"),
    *(setting_option(name) for name, setting in TABLE.items() if setting.option),
)


class Run(Protocol):
    async def __call__(self, process: RelayProcess, /, *, events: Events) -> None: ...


# Threads of `def` handlers that still ran when the relay had ended; `main` does not wait for them.
STUCK: list[str] = []


@click.command(
    "relay",
    epilog=example(
        "redrive relay shop:app", "redrive relay", "redrive relay shop:app --only erp --only mail --log-format json"
    ),
)
@relay_options
@click.pass_context
def command(context: click.Context, /, app_spec: str | None, only: tuple[str, ...], name: str, **flags: Any) -> None:
    """Deliver the messages of the destinations that an app declares, or without one redrive.toml ([destinations.NAME]).

    Any number of relays on any number of machines share one database. SIGTERM or Ctrl-C stops gracefully: what
    runs ends, what has not begun is handed back. Every other setting: REDRIVE_* or redrive.toml.
    """
    settings = load_settings(context, **flags)
    app, spec = load(context, app_spec)
    dsn = database_of(settings)
    with explained(dsn):
        migrate.require_current(dsn)
        deliver(settings, dsn, app, spec, only=only, name=name)


def load(context: click.Context, app_spec: str | None) -> tuple[App, str]:
    if app_spec is not None:
        return load_app(app_spec), app_spec
    config = context.find_root().params.get("config")
    app = toml_destinations.app_from_file(config)
    if config is not None:
        os.environ["REDRIVE_CONFIG"] = str(Path(config).absolute())
    return app, toml_destinations.SPEC


def deliver(
    settings: Settings,
    dsn: str,
    app: App,
    app_spec: str,
    *,
    only: Sequence[str],
    name: str,
    beside: Callable[[], AbstractAsyncContextManager[None]] = nullcontext,
    run: Run = run_relay,
) -> None:
    """beside: what is open on the same loop for as long. run: the relay alone, or with a worker."""
    logs.configure(settings.log_format, settings.log_level)
    process = RelayProcess.of(settings, app=app, dsn=dsn, app_spec=app_spec, only=only, name=name)
    run_to_end(_run(process, settings, beside, run), threads=THREADS)


def run_to_end(main: Coroutine[Any, Any, None], *, threads: str) -> None:
    """Not asyncio.run: at its end that waits for handlers that ignore their cancellation. threads: how theirs begin."""
    before = frozenset(threading.enumerate())  # threads of the program that called this command
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(main)
    finally:
        ours = (thread for thread in threading.enumerate() if thread not in before)
        STUCK.extend(thread.name for thread in ours if thread.name.startswith(threads))
        if not asyncio.all_tasks(loop):
            loop.close()


async def _run(
    process: RelayProcess, settings: Settings, beside: Callable[[], AbstractAsyncContextManager[None]], run: Run
) -> None:
    events = Events()
    _trace(events)
    logs.subscribe(events)
    async with observed(events, process, settings), beside():
        await run(process, events=events)


def _trace(events: Events) -> None:
    """Where the app has brought OpenTelemetry along; else it is not even imported."""
    if "opentelemetry.trace" in sys.modules:
        from redrive.operate.observe import traces

        traces.subscribe(events)
