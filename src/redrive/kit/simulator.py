"""The other side of a demo or a proof: a web application in a process of its own.

`redrive.kit.demo.simulated` and `ProofEnvironment.server` start it with its settings on standard input; the first line
that it prints is its address.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from aiohttp import web

__all__ = ["HOST", "serve"]
HOST: Final = "127.0.0.1"


def serve(made: Callable[[Mapping[str, Any]], web.Application]) -> None:
    """Until Ctrl-C. made: the application of these settings. `port` of the settings: None = a free one."""
    with suppress(KeyboardInterrupt):
        settings = json.loads(sys.stdin.buffer.read())
        asyncio.run(_serve(made(settings), settings.get("port", 0)))


async def _serve(app: web.Application, port: int) -> None:
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, HOST, port).start()
        print(f"http://{HOST}:{runner.addresses[0][1]}", flush=True)
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()
