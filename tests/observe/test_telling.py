"""What a process for suspects settles is told by the relay that started it."""

from __future__ import annotations

import asyncio
import os

from redrive.events import Events
from redrive.relay.telling import TOLD, hear, tell
from tests.support import messages as m


async def test_facts_of_the_child_are_events_of_the_relay() -> None:
    child, relay = Events(), Events()
    told: list[tuple[str, object]] = []
    relay.subscribe(lambda name, values: told.append((name, dict(values))))
    heard, pipe = os.pipe()
    hearing = asyncio.create_task(hear(heard, relay))
    tell(child, pipe)
    child.emit("message.parked", id=m.SOME_ID, destination="erp", reason="dead", latency_ms=3)
    child.emit("relay.started", worker=m.WORKER, destinations=[])  # not of a message: the child's own affair
    os.write(pipe, b'half a line\n{"name": "relay.stopped", "values": {}}\n{"name": "message.del')
    os.close(pipe)
    await hearing
    assert told == [("message.parked", {"id": str(m.SOME_ID), "destination": "erp", "reason": "dead", "latency_ms": 3})]
    child.emit("message.parked", id=m.SOME_ID)  # nobody hears it any more
    assert "message.delivered" in TOLD
