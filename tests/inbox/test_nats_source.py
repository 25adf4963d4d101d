"""A worker on a real NATS JetStream, killed while it consumes: each event once, in the order of its key."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import nats
import pytest
from nats.js import JetStreamContext

from redrive.operate.embedded import nats_server
from redrive.sources.nats import NatsSource
from tests.inbox.kills import EVENTS, consume_through_kills, event

pytestmark = pytest.mark.req("G-23")

APP = """
import os
from redrive import App
from redrive.sources.nats import NatsSource

app = App()

@app.consumer("billing", concurrency=4, order="subject", source=lambda: NatsSource(
    os.environ["NATS_URL"], stream="ORDERS", durable="billing", ack_wait_seconds=1))
async def billing(conn, event):
    await conn.execute("INSERT INTO effect (key, n) VALUES (%s, %s)", [event.subject, event.data["n"]])
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    with nats_server.start(tmp_path / "nats") as running:
        yield running.url


async def publish(url: str, count: int) -> None:
    client = await nats.connect(url)
    stream = client.jetstream()
    await stream.add_stream(name="ORDERS", subjects=["orders.>"])
    for n in range(count):
        key, attributes, data = event(n)
        headers = {f"ce-{name}": value for name, value in attributes.items()}
        await stream.publish(f"orders.{key}", data, headers=headers)
    await client.close()


@pytest.mark.timeout(900)
async def test_every_event_once_and_in_order_through_kills(server: str, database: str, tmp_path: Path) -> None:
    await publish(server, EVENTS)
    await consume_through_kills(APP, database, tmp_path, environment={"NATS_URL": server})


async def test_after_a_crash_new_events_wait_for_those_that_come_again(server: str) -> None:
    await publish(server, 6)
    first = NatsSource(server, stream="ORDERS", durable="d", ack_wait_seconds=1)
    assert len(await first.receive(3)) == 3
    await first._disconnect()  # as a crash: nothing is given back
    second = NatsSource(server, stream="ORDERS", durable="d", ack_wait_seconds=1)
    found: list[str] = []
    async with asyncio.timeout(30):
        while len(found) < 6:
            found += [delivery.id for delivery in await second.receive(10)]
    await second.aclose()
    assert found == [f"ORDERS:{n}" for n in range(1, 7)]


async def test_what_is_given_back_or_not_acknowledged_comes_again(server: str) -> None:
    await publish(server, 3)
    first = NatsSource(server, stream="ORDERS", durable="d", ack_wait_seconds=0.5)
    got = list(await first.receive(10))
    assert [delivery.id for delivery in got] == ["ORDERS:1", "ORDERS:2", "ORDERS:3"]
    assert got[0].order_by == "orders.k0"
    await first.ack(got[0])
    await first.give_back(got[1])
    await first.aclose()
    second = NatsSource(server, stream="ORDERS", durable="d", ack_wait_seconds=0.5)
    found: list[str] = []
    while len(found) < 2:
        found += [delivery.id for delivery in await second.receive(10)]
    assert found == ["ORDERS:2", "ORDERS:3"]
    await second.aclose()


async def test_a_fetch_that_ran_out_of_time_leaves_the_connection_to_what_is_in_hand(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the answer of the server comes at the last moment, the client raises the plain TimeoutError."""
    await publish(server, 1)
    source = NatsSource(server, stream="ORDERS", durable="d")
    (in_hand,) = await source.receive(10)

    async def too_late(*_: object, **__: object) -> None:
        raise TimeoutError

    monkeypatch.setattr(JetStreamContext.PullSubscription, "fetch", too_late)
    assert list(await source.receive(10)) == []
    await source.ack(in_hand)
    await source.aclose()
