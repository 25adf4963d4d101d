"""What a process for suspects settles is told by the relay that started it."""

from __future__ import annotations

import asyncio
import os
import urllib.request
from pathlib import Path

import psycopg
import pytest

import redrive
from redrive.events import Events
from redrive.relay.crash.child_events import TOLD, forward, tell
from tests.observe.scrape import parsed
from tests.observe.test_secrets import relay
from tests.support import messages as m
from tests.support.waiting import wait_until

HELD = (("destination", "async"), ("reason", "held"))


async def test_facts_of_the_child_are_events_of_the_relay() -> None:
    child, relay = Events(), Events()
    told: list[tuple[str, object]] = []
    relay.subscribe(lambda name, values: told.append((name, dict(values))))
    heard, pipe = os.pipe()
    hearing = asyncio.create_task(forward(heard, relay))
    tell(child, pipe)
    child.emit("message.parked", id=m.SOME_ID, destination="erp", reason="dead", latency_ms=3)
    child.emit("relay.started", worker=m.WORKER, destinations=[])  # not of a message: the child's own affair
    os.write(pipe, b'half a line\n{"name": "relay.stopped", "values": {}}\n{"name": "message.del')
    os.close(pipe)
    await hearing
    assert told == [("message.parked", {"id": str(m.SOME_ID), "destination": "erp", "reason": "dead", "latency_ms": 3})]
    child.emit("message.parked", id=m.SOME_ID)  # nobody hears it any more
    assert "message.delivered" in TOLD


@pytest.mark.full
@pytest.mark.req("G-20")
def test_the_metrics_of_a_relay_count_what_its_child_process_settled(database: str, tmp_path: Path) -> None:
    with psycopg.connect(database) as conn:
        for _ in range(2):
            redrive.enqueue(conn, "async", {"way": "none", "secret": "x"})
        conn.commit()
        # A worker that is gone: its claims come back as suspects for a child process; they are in doubt, and held.
        conn.execute("SELECT id FROM redrive.claim_1(%s, '{async}', '{1}', '{9}', 0.01)", [m.OTHER_WORKER])
    with relay(database, tmp_path, "json", reap_every_seconds="1") as (log, port):

        def held() -> float:
            text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
            return parsed(text).get("redrive_parked_total", {}).get(HELD, 0)

        wait_until(lambda: held() == 2, seconds=60, what="both to be counted")
    assert "suspects.spawned" in log.read_text()
    assert log.read_text().count('"message.parked"') == 2
