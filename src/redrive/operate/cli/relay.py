"""`redrive relay [MODULE:APP]`: delivers what waits, until it is stopped."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

import click

from redrive.app import App
from redrive.events import Events
from redrive.operate import logs, toml_destinations
from redrive.operate.cli.context import database_of, example, load_settings
from redrive.operate.operations import explained
from redrive.operate.settings import Settings
from redrive.relay.limits import RelayLimits
from redrive.relay.load_app import load_app
from redrive.relay.process import RelayProcess, run_relay
from redrive.store.migrations import migrate
from redrive.transports.functions import THREADS

_OPTIONS: Final = (
    click.argument("app_spec", metavar="[MODULE:APP]", required=False),
    click.option("--only", multiple=True, metavar="DESTINATION", help="Handle just this one; may be repeated."),
    click.option("--name", default="", help="Shown by `redrive status`. Default: host and process id."),
    click.option("--dsn", metavar="DSN", help="The database. Default: REDRIVE_DSN, redrive.toml."),
    click.option("--concurrency", type=int, help="Dispatches at a time in this process."),
    click.option("--lease-seconds", type=float, help="How long a claim lasts without renewal."),
    click.option("--poll-seconds", type=float, help="Longest pause between two looks for work."),
    click.option("--stop-seconds", type=float, help="How long a stop waits for what runs."),
    click.option(
        "--metrics-port", type=click.IntRange(0, 65_535), help="Show /metrics and /health on this port of this machine."
    ),
    click.option("--log-format", help="auto, console, json or logfmt."),
    click.option("--log-level", help="debug, info, warning, error or critical."),
)


def relay_options(command: Callable[..., None]) -> Callable[..., None]:
    """The app and the settings that are often changed; `redrive up` has them too."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


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
    settings = relay_settings(context, **flags)
    app, spec = load(context, app_spec)
    dsn = database_of(settings)
    with explained(dsn):
        migrate.require_current(dsn)
        deliver(settings, dsn, app, spec, only=only, name=name)


def relay_settings(context: click.Context, *, metrics_port: int | None, **flags: Any) -> Settings:
    """A port alone is one of this machine."""
    listen = None if metrics_port is None else str(metrics_port)
    return load_settings(context, metrics_listen=listen, **flags)


def load(context: click.Context, app_spec: str | None) -> tuple[App, str]:
    """The app that was named, or what the settings file declares; and the name by which a child process finds it."""
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
) -> None:
    """Run the relay until it is stopped. beside: what runs on the same loop for as long."""
    logs.configure(settings.log_format, settings.log_level)
    process = RelayProcess(
        app=app,
        dsn=dsn,
        limits=limits_of(settings),
        app_spec=app_spec,
        only=only,
        name=name,
        listen=settings.wakeup == "notify",
        listen_dsn=settings.listen_dsn,
        partition_days=settings.partition_days,
        partitions_ahead=settings.partitions_ahead,
        retention_days=settings.retention_days,
        allow_asynchronous_commit=settings.asynchronous_commit == "warn",
        state_directory=settings.state_directory or user_state_directory(),
    )
    before = frozenset(threading.enumerate())  # of somebody else, in whose process this command was called
    # Not asyncio.run: at its end that waits for handlers that ignore their cancellation.
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(_run(process, settings, beside))
    finally:
        ours = (thread for thread in threading.enumerate() if thread not in before)
        STUCK.extend(thread.name for thread in ours if thread.name.startswith(THREADS))
        if not asyncio.all_tasks(loop):
            loop.close()


async def _run(
    process: RelayProcess, settings: Settings, beside: Callable[[], AbstractAsyncContextManager[None]]
) -> None:
    events = Events()
    _trace(events)
    logs.subscribe(events)
    for advice in settings.advice():
        logging.getLogger("redrive").warning(advice)
    async with _observed(events, process, settings), beside():
        await run_relay(process, events=events)


def _trace(events: Events) -> None:
    """Where the app has brought OpenTelemetry along; else it is not even imported."""
    if "opentelemetry.trace" in sys.modules:
        from redrive.operate.observe import traces

        traces.subscribe(events)


@asynccontextmanager
async def _observed(events: Events, process: RelayProcess, settings: Settings) -> AsyncIterator[None]:
    """With metrics and health, if the settings say where; the library that they need is imported only then."""
    if settings.metrics_listen is None:
        yield
        return
    from redrive.operate.observe.observing import observing
    from redrive.operate.observe.server import Address

    async with observing(
        events,
        process.dsn,
        Address.parsed(settings.metrics_listen),
        more=[metric for system in process.app.systems.values() for metric in system.metrics.values()],
        every_seconds=settings.metrics_every_seconds,
        stalled_seconds=settings.stalled_seconds,
    ) as address:
        logging.getLogger("redrive").info("metrics and health on http://%s:%d", *address)
        yield


def user_state_directory() -> Path | None:
    """As the XDG base directories say: XDG_STATE_HOME, or .local/state of the user; None without a home."""
    named = os.environ.get("XDG_STATE_HOME", "")
    if named.startswith("/"):
        return Path(named) / "redrive"
    try:
        return Path.home() / ".local" / "state" / "redrive"
    except RuntimeError:
        return None


def limits_of(settings: Settings) -> RelayLimits:
    """The settings that a relay's loop knows, by the same names."""
    known = {field.name for field in fields(RelayLimits)} & set(Settings.model_fields)
    return RelayLimits(**{name: getattr(settings, name) for name in known})
