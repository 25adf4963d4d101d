"""Serves the console with uvicorn: on its own, or beside a relay on the same loop (`redrive up`).

On a loopback address it prints a link for one login: the reader of this terminal can act here anyway. Proxy headers do
not change the peer's address, and requests are not logged.
"""

import asyncio
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Final

import uvicorn

from redrive.errors import SettingsError
from redrive.operate.web.app import create_app
from redrive.operate.web.auth_config import AuthConfig, is_loopback, require_login_method
from redrive.operate.web.middleware import Guard
from redrive.operate.web.principal import Role
from redrive.operate.web.secrets import LINK_PREFIX, hash_of, new_secret
from redrive.operate.web.tokens import console_store
from redrive.settings import Settings
from redrive.store.runtime import access
from redrive.store.runtime.access import Bearer
from redrive.store.runtime.postgres import PostgresStore
from redrive.store.runtime.tenant_store import ALL_TENANTS

LINK_SECONDS: Final = 15 * 60.0
STOP_SECONDS: Final = 5


class Server(uvicorn.Server):
    """Leaves signals to the process, which may run a relay too."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listening(settings: Settings, *, any_port: bool = False) -> socket.socket:
    """A listening socket. any_port: use a free port if the configured one is taken."""
    host, port = settings.console_address
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        try:
            sock.bind((host, port))
        except OSError:
            if not any_port:
                raise
            sock.bind((host, 0))
        sock.listen()  # from here on connections wait instead of being refused
    except OSError as error:
        sock.close()
        raise SettingsError(
            f"The console cannot listen on {host}:{port}: {error.strerror or type(error).__name__}.",
            next="give console_listen (--port) another port",
        ) from error
    sock.set_inheritable(True)
    return sock


async def prepared(dsn: str, settings: Settings) -> Guard:
    auth = AuthConfig.of(settings)
    host, _ = settings.console_address
    async with PostgresStore(dsn, connections=1, name="redrive console") as store:
        require_login_method(auth, host, has_token=await access.has_token(console_store(store)))
    return create_app(dsn, auth)


async def login_link(dsn: str, settings: Settings, sock: socket.socket, *, name: str) -> str | None:
    """A URL for one login as administrator; None unless it listens on a loopback address."""
    host, port = sock.getsockname()[:2]
    if not is_loopback(host):
        return None
    secret = new_secret(LINK_PREFIX)
    async with PostgresStore(dsn, connections=1, name="redrive console") as store:
        await access.create_token(
            console_store(store),
            Bearer(name, Role.ADMIN, ALL_TENANTS),
            hash_of(secret),
            kind="link",
            valid_seconds=LINK_SECONDS,
            actor=name,
            reason="a console was started on this machine",
        )
    place = f"[{host}]" if ":" in host else host
    return f"http://{place}:{port}{AuthConfig.of(settings).root_path}/login?link={secret}"


async def serve(app: Guard, sock: socket.socket) -> None:
    """Serves until SIGTERM or SIGINT; requests under way get a few seconds."""
    server = server_of(app)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, server.handle_exit, number, None)
    await server.serve(sockets=[sock])


def server_of(app: Guard) -> uvicorn.Server:
    config = uvicorn.Config(
        app,
        access_log=False,
        log_config=None,
        proxy_headers=False,
        server_header=False,
        ws="none",
        lifespan="on",
        timeout_graceful_shutdown=STOP_SECONDS,
    )
    return Server(config)


@asynccontextmanager
async def beside(app: Guard, sock: socket.socket) -> AsyncIterator[None]:
    server = server_of(app)
    task = asyncio.create_task(server.serve(sockets=[sock]))
    try:
        yield
    finally:
        server.should_exit = True
        with suppress(asyncio.CancelledError):
            await task
