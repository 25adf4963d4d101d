"""The console on a port of this machine, in a thread, with the secret of somebody who may use it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from redrive.operate.web import serving, tokens
from redrive.operate.web.app import create_app
from redrive.operate.web.auth_config import AuthConfig
from redrive.operate.web.principal import Role
from redrive.operate.web.tokens import NewToken
from redrive.settings import Settings
from redrive.store.runtime.postgres import PostgresStore
from redrive.who import Who
from tests.console.story import beside


class Served(NamedTuple):
    """url: with the prefix. secret: of an administrator's token."""

    url: str
    secret: str


@contextmanager
def served(dsn: str, *, prefix: str = "", role: Role = Role.ADMIN, name: str = "ada") -> Iterator[Served]:
    sock = serving.listening(Settings(console_listen="0"))
    app = create_app(dsn, AuthConfig(root_path=prefix), systems={})
    secret: list[str] = []

    async def serve(started: threading.Event) -> None:
        secret.append(await _token(dsn, role, name))
        server = serving.server_of(app)
        task = asyncio.create_task(server.serve(sockets=[sock]))
        while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.01)
        started.set()
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            server.should_exit = True
            await task

    # Not in the thread of the test: a browser's test has a loop of its own there.
    with beside(serve):
        yield Served(f"http://127.0.0.1:{sock.getsockname()[1]}{prefix}", secret[0])


async def _token(dsn: str, role: Role, name: str) -> str:
    async with PostgresStore(dsn, connections=1) as store:
        wanted = NewToken(name=name, role=role, tenant="*", days=1.0)
        return (await tokens.create(store, wanted, Who(actor="test", reason="test")))[1]
