"""One relay process that drains: `python -m redrive.bench.drain`, its settings as JSON on standard input.

A process of its own, as in production. It prints the rate from its start (after registering) to the last settle.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Mapping
from typing import Any

import redrive
from redrive.events import Events
from redrive.policy import Settlement
from redrive.relay.run import RelayProcess, run_relay


async def handle(message: redrive.Attempt) -> None:
    """Does nothing but read the payload."""
    _ = message.payload["text"]


async def record(conn: Any, attempt: redrive.Attempt, _: Settlement) -> None:
    await conn.execute("INSERT INTO bench_record VALUES (%s)", [attempt.id])


def make_app(settings: Mapping[str, Any]) -> redrive.App:
    app = redrive.App()
    for name in settings["destinations"]:
        app.destination(name, record=record if name in settings["records"] else None)(handle)
    return app


async def drain(settings: Mapping[str, Any]) -> float:
    """Messages per second of the counted destinations."""
    events, began, ended = Events(), 0.0, asyncio.Event()
    left = int(settings["count"])

    def heard(name: str, values: Mapping[str, Any]) -> None:
        nonlocal began, left
        if name == "relay.started":
            began = time.perf_counter()
            return
        left -= int(values["settled"])
        if left <= 0:
            ended.set()

    events.subscribe(heard, "relay.started", "settle.stop")
    process = RelayProcess(app=make_app(settings), dsn=settings["dsn"], name="bench")
    relay = asyncio.create_task(run_relay(process, events=events, signals=False))
    await asyncio.wait([relay, asyncio.create_task(ended.wait())], return_when=asyncio.FIRST_COMPLETED)
    elapsed = time.perf_counter() - began
    relay.cancel()
    await asyncio.gather(relay, return_exceptions=True)
    return float(settings["count"]) / elapsed


if __name__ == "__main__":
    given = json.loads(sys.stdin.read())
    print(json.dumps({"rate": asyncio.run(drain(given))}))
