"""`redrive console`: the web console and the API, until they are stopped."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from socket import socket
from typing import Any, Final

import click

from redrive.errors import SettingsError
from redrive.operate import logs
from redrive.operate.cli import output
from redrive.operate.cli.acts import user_name
from redrive.operate.cli.context import database_of, example, load_settings, setting_option
from redrive.operate.operations import explained
from redrive.settings import Address, Settings
from redrive.store.migrations import migrate

LIBRARIES: Final = ("fastapi", "uvicorn", "jinja2", "sse_starlette", "python_multipart")


@click.command(
    "console",
    epilog=example("redrive console", "redrive console --port 9000", "redrive console --host 0.0.0.0 --port 8321"),
)
@click.option("--host", help="The address to listen on. Default: this machine only (console_listen).")
@click.option("--port", type=click.IntRange(0, 65_535), help="The port to listen on; 0 chooses one.")
@setting_option("console_root_path", "--root-path")
@setting_option("dsn")
@click.pass_context
def command(context: click.Context, /, host: str | None, port: int | None, **flags: Any) -> None:
    """Serve the web console, and the API below /api/v1.

    On this machine it prints a link for one login. On another address users log in by a token (`redrive tokens`) or
    through a trusted proxy (console_proxy_peers); without either it does not start.
    """
    require_libraries()
    settings = load_settings(context, **flags)
    settings = _listening_on(settings, host, port)
    dsn = database_of(settings)
    logs.configure(settings.log_format, settings.log_level)
    with explained(dsn):
        migrate.require_current(dsn)
        asyncio.run(_serve(settings, dsn))


def are_libraries_there() -> bool:
    return all(find_spec(name) for name in LIBRARIES)


def require_libraries() -> None:
    if not are_libraries_there():
        raise SettingsError(
            "The console needs libraries that are not installed.", next="pip install 'redrive[console]'"
        )


def _listening_on(settings: Settings, host: str | None, port: int | None) -> Settings:
    set_host, set_port = settings.console_address
    address = Address(host or set_host, set_port if port is None else port)
    return settings.model_copy(update={"console_listen": str(address)})


async def _serve(settings: Settings, dsn: str) -> None:
    async with _listening(settings, dsn, any_port=False) as (serving, app, sock):
        await serving.serve(app, sock)


@asynccontextmanager
async def beside(settings: Settings, dsn: str) -> AsyncIterator[None]:
    """If its libraries are installed."""
    if not are_libraries_there():
        output.note("The console is not installed. Next: pip install 'redrive[console]'")
        yield
        return
    any_port = settings.origins()["console_listen"] == "default"
    async with _listening(settings, dsn, any_port=any_port) as (serving, app, sock), serving.beside(app, sock):
        yield


@asynccontextmanager
async def _listening(settings: Settings, dsn: str, *, any_port: bool) -> AsyncIterator[tuple[Any, Any, socket]]:
    from redrive.operate.web import serving  # needs the libraries

    app = await serving.prepared(dsn, settings)
    with serving.listening(settings, any_port=any_port) as sock:
        host, port = sock.getsockname()[:2]
        link = await serving.login_link(dsn, settings, sock, name=user_name())
        if link is None:
            output.note(f"The console listens on {host}:{port}.")
        else:
            output.note(f"The console; this link is good for one login: {link}")
        yield serving, app, sock
