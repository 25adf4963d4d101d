"""A real HTTP server on loopback that answers as a test says, and keeps what it was asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from redrive.transports.http import Egress

Answering = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Asked:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Destination:
    """url: of the server. answer: what it does from now on."""

    url: str
    answer: Answering
    asked: list[Asked] = field(default_factory=list)
    was_asked: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])


HERE = Egress(allow=["127.0.0.0/8", "::1/128"], schemes=frozenset({"http"}))


async def ok(_: web.Request) -> web.StreamResponse:
    return web.Response(text="ok")


def status(number: int, **headers: str) -> Answering:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(status=number, headers={name.replace("_", "-"): value for name, value in headers.items()})

    return answer


async def never(_: web.Request) -> web.StreamResponse:
    await asyncio.sleep(1000)
    raise AssertionError


async def hang_up(request: web.Request) -> web.StreamResponse:
    """It has read all of the request, and nobody hears what became of it."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


@asynccontextmanager
async def serving(answer: Answering = ok) -> AsyncIterator[Destination]:
    async def handle(request: web.Request) -> web.StreamResponse:
        body = await request.read()
        destination.asked.append(Asked(request.method, request.path_qs, dict(request.headers), body))
        destination.was_asked.set()
        return await destination.answer(request)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    destination = Destination(f"http://127.0.0.1:{port}", answer)
    try:
        yield destination
    finally:
        await runner.cleanup()


@asynccontextmanager
async def listening(port: int = 0) -> AsyncIterator[tuple[int, list[Any]]]:
    """A port on loopback, IPv4 and IPv6, and whoever has connected to it."""
    came: list[Any] = []

    async def welcome(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.append(writer.get_extra_info("peername"))
        writer.close()

    first = await asyncio.start_server(welcome, "127.0.0.1", port)
    port = first.sockets[0].getsockname()[1]
    servers = [first]
    with suppress(OSError):  # a machine without IPv6
        servers.append(await asyncio.start_server(welcome, "::1", port))
    try:
        yield port, came
    finally:
        for server in servers:
            server.close()
