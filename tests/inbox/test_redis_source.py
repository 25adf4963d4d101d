"""A worker on a real Valkey, killed while it consumes; and what its source gets again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from redrive.errors import InvalidValue
from redrive.ports.sources import Delivery
from redrive.sources.redis import RedisSource
from redrive.testing import make_attempt
from tests.inbox.kills import EVENTS, consume_through_kills, event
from tests.transports.brokers.redis_broker import RedisBroker
from tests.transports.brokers.subjects import started

pytestmark = pytest.mark.req("G-23")

APP = """
import os
from redrive import App
from redrive.sources.redis import RedisSource

app = App()

@app.consumer("billing", concurrency=4, order="subject", source=lambda: RedisSource(
    os.environ["REDIS_URL"], stream="orders", group="billing"))
async def billing(conn, event):
    await conn.execute("INSERT INTO effect (key, n) VALUES (%s, %s)", [event.subject, event.data["n"]])
"""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RedisBroker]:
    with started(RedisBroker(tmp_path)) as running:
        yield running


@asynccontextmanager
async def opened(broker: RedisBroker, **options: Any) -> AsyncIterator[RedisSource]:
    source = RedisSource(broker.url, **{"stream": "orders", "group": "billing", **options})
    try:
        yield source
    finally:
        await source.aclose()


def publish(broker: RedisBroker, count: int) -> list[str]:
    """Returns their ids, as the source gives them."""
    ids = []
    with broker.client() as client:
        for n in range(count):
            _, attributes, data = event(n)
            fields = {**{f"ce-{name}": value for name, value in attributes.items()}, "data": data}
            ids.append(f"orders:{client.xadd('orders', fields).decode()}")
    return ids


def ids_of(deliveries: Any) -> list[str]:
    return [delivery.id for delivery in deliveries]


async def until(source: RedisSource, count: int) -> list[Delivery]:
    found: list[Delivery] = []
    async with asyncio.timeout(30):
        while len(found) < count:
            found += await source.receive(10)
    return found


@pytest.mark.timeout(900)
async def test_every_event_once_and_in_order_through_kills(broker: RedisBroker, database: str, tmp_path: Path) -> None:
    publish(broker, EVENTS)
    await consume_through_kills(APP, database, tmp_path, environment={"REDIS_URL": broker.url})
    with broker.client() as client:
        assert client.xpending("orders", "billing")["pending"] == 0


async def test_what_was_not_acknowledged_comes_first_to_the_next_of_its_name_and_in_order(broker: RedisBroker) -> None:
    ids = publish(broker, 4)
    async with opened(broker) as first:
        got = await until(first, 3)
        await first.ack(got[1])
    async with opened(broker) as second:
        assert ids_of(await until(second, 3)) == [ids[0], ids[2], ids[3]]


async def test_what_is_given_back_comes_again_and_what_is_in_hand_does_not(broker: RedisBroker) -> None:
    ids = publish(broker, 2)
    async with opened(broker) as source:
        first, second = await until(source, 2)
        await source.give_back(second)
        assert ids_of(await until(source, 1)) == [ids[1]]
        await source.ack(first)
        await source.ack(second)
        assert await source.receive(10) == []


async def test_what_is_given_back_during_a_look_at_what_was_delivered_comes_again_too(
    broker: RedisBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = publish(broker, 2)
    async with opened(broker) as source:
        first, second = await until(source, 2)
        await source.give_back(second)
        assert await source.receive(1) == []  # the first one is in hand, and behind us now
        read = source._read

        async def give_back_meanwhile(*values: Any, **options: Any) -> Any:
            monkeypatch.undo()
            found = await read(*values, **options)
            await source.give_back(first)
            return found

        monkeypatch.setattr(source, "_read", give_back_meanwhile)
        assert ids_of(await source.receive(1)) == [ids[1]]
        assert ids_of(await until(source, 1)) == [ids[0]]


async def test_another_name_takes_over_what_lies_idle(broker: RedisBroker) -> None:
    ids = publish(broker, 3)
    async with opened(broker, name="one") as first:
        await until(first, 3)
    async with opened(broker, name="two", idle_seconds=0.05) as second:
        assert ids_of(await until(second, 3)) == ids


async def test_after_a_lost_connection_nothing_is_lost_and_what_is_in_hand_does_not_come_again(
    broker: RedisBroker,
) -> None:
    ids = publish(broker, 1)
    async with opened(broker) as source:
        (first,) = await until(source, 1)
        with broker.client() as client:
            client.client_kill_filter(_type="normal", skipme=True)
        ids += publish(broker, 2)[:1]
        found: list[str] = []
        while len(found) < 2:
            try:
                found += ids_of(await source.receive(10))
            except Exception:
                await asyncio.sleep(0.01)
        assert first.id not in found
        await source.ack(first)


async def test_a_cancelled_receive_loses_nothing(broker: RedisBroker) -> None:
    async with opened(broker) as source:
        waiting = asyncio.create_task(source.receive(10))
        await asyncio.sleep(0.05)
        waiting.cancel()
        await asyncio.wait({waiting})
        ids = publish(broker, 2)
        assert ids_of(await until(source, 2)) == ids


@pytest.mark.parametrize("loss", [ConnectionError, asyncio.CancelledError])
async def test_a_reply_that_was_not_read_is_asked_for_again(
    broker: RedisBroker, monkeypatch: pytest.MonkeyPatch, loss: type[BaseException]
) -> None:
    async with opened(broker) as source:
        assert await source.receive(10) == []
        read = source._read

        async def read_and_lose(*values: Any, **options: Any) -> Any:
            monkeypatch.undo()
            await read(*values, **options)
            raise loss

        ids = publish(broker, 2)
        monkeypatch.setattr(source, "_read", read_and_lose)
        with pytest.raises(loss):
            await source.receive(10)
        assert ids_of(await until(source, 2)) == ids


async def test_an_entry_that_the_stream_has_trimmed_does_not_stop_the_source(broker: RedisBroker) -> None:
    ids = publish(broker, 3)
    async with opened(broker) as first:
        await until(first, 3)
    with broker.client() as client:
        client.xdel("orders", ids[0].removeprefix("orders:"))
    async with opened(broker) as second:
        assert ids_of(await until(second, 2)) == ids[1:]
    with broker.client() as client:
        assert client.xpending("orders", "billing")["pending"] == 2


async def test_what_our_transport_publishes_is_read_with_its_key(broker: RedisBroker) -> None:
    transport = broker.transport(broker.port, "orders")
    await transport.send(make_attempt({"n": 1}, order_by="k1"))
    await transport.aclose()
    async with opened(broker) as source:
        (delivery,) = await until(source, 1)
    assert (delivery.order_by, delivery.content_type, delivery.body) == ("k1", "application/json", b'{"n":1}')


@pytest.mark.parametrize("wrong", [{"stream": ""}, {"group": ""}, {"name": ""}, {"idle_seconds": 0}])
def test_a_value_out_of_bounds_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        RedisSource("redis://127.0.0.1:1", **{"stream": "s", "group": "g", **wrong})
