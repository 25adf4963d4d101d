"""Workers on a real RabbitMQ: killed, cut off, the broker ended under them; on classic and quorum queues."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import aio_pika
import psycopg
import pytest
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage
from aiormq.abc import ChannelFrame
from pamqp.body import ContentBody
from pamqp.commands import Basic
from pamqp.header import ContentHeader

from redrive.consume.event import read_event
from redrive.errors import InvalidValue, LoginRefused, QueueMissing, Unreachable
from redrive.kit.proof.brokers.proxy import Proxy
from redrive.ports.sources import Delivery
from redrive.sources.rabbitmq import RabbitSource
from redrive.testing import make_attempt
from redrive.transports.rabbitmq import CloudEvents
from tests.inbox.kills import EVENTS, check_effects, consume_through_kills, event
from tests.support.scratch import scratch
from tests.support.waiting import wait_until
from tests.transports.brokers.rabbit_broker import RabbitBroker
from tests.transports.brokers.subjects import started

pytestmark = [pytest.mark.req("G-23"), pytest.mark.full]

APP = """
import asyncio
import os
from redrive import App
from redrive.sources.rabbitmq import RabbitSource

app = App()

@app.consumer("billing", concurrency=4, order="subject", source=lambda: RabbitSource(
    os.environ["RABBITMQ_URL"], queue=os.environ["QUEUE"]))
async def billing(conn, event):
    await conn.execute("INSERT INTO effect (key, n) VALUES (%s, %s)", [event.subject, event.data["n"]])
    await asyncio.sleep(float(os.environ.get("HANDLER_SECONDS", "0")))
"""
QUEUES = {"classic": {}, "quorum": {"x-queue-type": "quorum"}}
WAIT_SECONDS = 300.0  # only what hangs takes so long


@pytest.fixture(scope="module")
def broker() -> Iterator[RabbitBroker]:
    with scratch("redrive-rabbitmq-") as directory, started(RabbitBroker(directory)) as running:
        yield running


@pytest.fixture(params=sorted(QUEUES))
def queue(broker: RabbitBroker, request: pytest.FixtureRequest) -> str:
    """With a single active consumer."""
    name = f"orders-{uuid4().hex}"
    arguments: Any = {**QUEUES[request.param], "x-single-active-consumer": True}
    broker.ask(lambda channel: channel.declare_queue(name, durable=True, arguments=arguments))
    return name


@asynccontextmanager
async def opened(broker: RabbitBroker, queue: str, *, port: int | None = None) -> AsyncIterator[RabbitSource]:
    source = RabbitSource(f"amqp://guest:guest@127.0.0.1:{port or broker.port}/", queue=queue)
    try:
        yield source
    finally:
        await source.aclose()


def publish(broker: RabbitBroker, queue: str, numbers: range) -> None:
    put(broker, queue, *(message(n) for n in numbers))


def message(n: int) -> aio_pika.Message:
    _, attributes, data = event(n)
    headers: Any = {f"cloudEvents_{name}": value for name, value in attributes.items()}
    return aio_pika.Message(data, headers=headers, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)


def put(broker: RabbitBroker, queue: str, *messages: aio_pika.Message) -> None:
    async def publish(channel: AbstractChannel) -> None:
        for message in messages:
            await channel.default_exchange.publish(message, queue)

    broker.ask(publish)


def left(broker: RabbitBroker, queue: str) -> int:
    """Messages that no consumer has."""

    async def count(channel: AbstractChannel) -> int:
        declared = await channel.declare_queue(queue, passive=True)
        return declared.declaration_result.message_count or 0

    return broker.ask(count)


@contextmanager
def worker(
    broker: RabbitBroker, queue: str, database: str, directory: Path, *, handler_seconds: float, log: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Stopped gracefully at the end, unless it was ended before."""
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("CREATE TABLE IF NOT EXISTS effect (number bigserial, key text, n int)")
    (directory / "shop_consumer.py").write_text(APP, encoding="utf-8")
    given = {"RABBITMQ_URL": broker.url, "QUEUE": queue, "HANDLER_SECONDS": str(handler_seconds)}
    environment = {**os.environ, **given, "PYTHONPATH": str(directory), "REDRIVE_DSN": database}
    command = [sys.executable, "-m", "redrive", "worker", "shop_consumer:app", "--log-level", "debug"]
    with (log or Path(os.devnull)).open("wb") as output:
        running = subprocess.Popen(command, env=environment, stderr=output)
    try:
        yield running
    finally:
        running.terminate()
        running.wait(WAIT_SECONDS)


def has_effects(conn: psycopg.Connection[Any], count: int) -> bool:
    return conn.execute("SELECT count(*) >= %s FROM effect", [count]).fetchone() == (True,)


def has_looked(log: Path) -> bool:
    """The worker is subscribed, and was given nothing."""
    return "consumer.looked" in log.read_text("utf-8")


async def until_true(condition: Callable[[], bool]) -> None:
    await asyncio.to_thread(wait_until, condition, seconds=WAIT_SECONDS, what="the condition")


def numbers(deliveries: list[Delivery]) -> list[int]:
    return [int(delivery.headers["cloudEvents_id"]) for delivery in deliveries]


async def until(source: RabbitSource, count: int) -> list[Delivery]:
    found: list[Delivery] = []
    while len(found) < count:
        found += await source.receive(count - len(found))
    return found


async def until_again(source: RabbitSource, count: int) -> list[Delivery]:
    """As a worker: after an error the source is asked again."""
    found: list[Delivery] = []
    while len(found) < count:
        try:
            found += await source.receive(count - len(found))
        except Unreachable:
            await asyncio.sleep(0.01)
    return found


async def ignore(message: AbstractIncomingMessage) -> None:
    """The callback of a consumer that only has its queue to itself."""


async def receive_for_ever(source: RabbitSource) -> None:
    while True:
        await source.receive(1)


async def acknowledge(source: RabbitSource, deliveries: list[Delivery]) -> None:
    for delivery in deliveries:
        await source.ack(delivery)


async def all_unacknowledged(broker: RabbitBroker, queue: str) -> list[int]:
    """All that are in the queue when every source has gone, in their order."""
    async with opened(broker, queue) as source:
        found: list[Delivery] = []
        while more := await source.receive(100):
            found += more
        return numbers(found)


@pytest.mark.timeout(900)
async def test_every_event_once_and_in_order_through_kills(
    broker: RabbitBroker, queue: str, database: str, tmp_path: Path
) -> None:
    publish(broker, queue, range(EVENTS))
    await consume_through_kills(APP, database, tmp_path, environment={"RABBITMQ_URL": broker.url, "QUEUE": queue})
    assert await all_unacknowledged(broker, queue) == []


@pytest.mark.timeout(900)
async def test_every_event_once_and_in_order_while_another_worker_stands_by(
    broker: RabbitBroker, queue: str, database: str, tmp_path: Path
) -> None:
    """The active worker is killed, its successor is stopped, and the third one has the rest."""
    publish(broker, queue, range(EVENTS))
    begin = partial(worker, broker, queue, database, tmp_path, handler_seconds=0.01)
    with psycopg.connect(database, autocommit=True) as conn, begin() as first:
        await until_true(partial(has_effects, conn, EVENTS // 8))
        with begin(log=tmp_path / "second.log") as second:
            await until_true(partial(has_looked, tmp_path / "second.log"))
            first.kill()
            await until_true(partial(has_effects, conn, EVENTS // 2))
            with begin(log=tmp_path / "third.log") as third:
                await until_true(partial(has_looked, tmp_path / "third.log"))
                second.terminate()
                assert await asyncio.to_thread(second.wait, WAIT_SECONDS) == 0
                await until_true(partial(has_effects, conn, EVENTS))
        assert [one.wait(WAIT_SECONDS) for one in (first, third)] == [-signal.SIGKILL, 0]
        check_effects(conn)


async def test_what_was_not_acknowledged_comes_again_in_its_order_and_first(broker: RabbitBroker, queue: str) -> None:
    publish(broker, queue, range(8))
    async with opened(broker, queue) as first, opened(broker, queue) as second:
        got = await until(first, 6)
        assert await second.receive(6) == []  # not before the first one has gone
        await acknowledge(first, [got[1], got[4]])
        await first.aclose()
        assert numbers(await until(second, 6)) == [0, 2, 3, 5, 6, 7]


async def test_what_is_given_back_comes_again_in_its_place_and_the_broker_is_not_told(
    broker: RabbitBroker, queue: str
) -> None:
    publish(broker, queue, range(5))
    async with opened(broker, queue) as source:
        got = await until(source, 3)
        await source.give_back(got[2])
        await source.give_back(got[0])
        again = await until(source, 2)
        assert numbers(again) == [0, 2]
        assert again[0].handle.message.redelivered is False
        await source.give_back(again[1])
        await acknowledge(source, [again[0]])
    assert await all_unacknowledged(broker, queue) == [1, 2, 3, 4]


async def test_no_more_is_taken_from_the_queue_than_there_is_room_for(broker: RabbitBroker, queue: str) -> None:
    publish(broker, queue, range(10))
    async with opened(broker, queue) as source:
        got = await until(source, 3)
        assert await source.receive(3) == []
        assert await asyncio.to_thread(left, broker, queue) == 7
        await source.ack(got[1])
        assert numbers(await until(source, 1)) == [3]


async def test_after_a_lost_connection_nothing_is_lost_and_late_acknowledgements_do_no_harm(
    broker: RabbitBroker, queue: str
) -> None:
    publish(broker, queue, range(6))
    async with Proxy(broker.port) as proxy, opened(broker, queue, port=proxy.port) as source:
        old = await until(source, 4)
        await source.ack(old[0])
        await proxy.refuse()
        with pytest.raises(Unreachable):
            await receive_for_ever(source)
        await acknowledge(source, old)
        await source.give_back(old[1])
        await proxy.accept()
        new = await until_again(source, 4)
        assert numbers(new) == [1, 2, 3, 4]
        await acknowledge(source, old)  # their numbers are those of other messages on the new channel
        await acknowledge(source, new)
        assert numbers(await until(source, 1)) == [5]
    assert await all_unacknowledged(broker, queue) == [5]


async def test_the_order_survives_two_losses_although_there_is_less_room_after_the_first(
    broker: RabbitBroker, queue: str
) -> None:
    publish(broker, queue, range(20))
    async with Proxy(broker.port) as proxy, opened(broker, queue, port=proxy.port) as source:
        await until(source, 10)
        await proxy.cut()
        assert numbers(await until_again(source, 3)) == [0, 1, 2]
    assert await all_unacknowledged(broker, queue) == list(range(20))


async def test_a_channel_that_rabbitmq_closes_is_opened_again(broker: RabbitBroker, queue: str) -> None:
    publish(broker, queue, range(3))
    async with opened(broker, queue) as source:
        (first, *_) = await until(source, 2)
        await first.handle.message.channel.basic_ack(999)  # it closes the channel of one that it does not know
        assert numbers(await until_again(source, 3)) == [0, 1, 2]


@pytest.mark.timeout(900)
async def test_every_event_once_and_in_order_while_the_broker_is_killed(
    broker: RabbitBroker, queue: str, database: str, tmp_path: Path
) -> None:
    publish(broker, queue, range(EVENTS))
    with (
        psycopg.connect(database, autocommit=True) as conn,
        worker(broker, queue, database, tmp_path, handler_seconds=0.01) as running,
    ):
        for share in (0.2, 0.5):
            await until_true(partial(has_effects, conn, int(share * EVENTS)))
            await asyncio.to_thread(broker.stop, signal.SIGKILL)
            await asyncio.to_thread(broker.start)
        await until_true(partial(has_effects, conn, EVENTS))
        running.terminate()
        assert running.wait(WAIT_SECONDS) == 0
        check_effects(conn)
    assert await all_unacknowledged(broker, queue) == []


async def test_a_cancelled_receive_loses_nothing(broker: RabbitBroker, queue: str) -> None:
    async with opened(broker, queue) as source:
        for wait in (0, 0.05):  # while it connects, while it waits
            waiting = asyncio.create_task(source.receive(10))
            await asyncio.sleep(wait)
            waiting.cancel()
            await asyncio.wait({waiting})
        await source.receive(10)
        waiting = asyncio.create_task(source.receive(10))
        await asyncio.sleep(0)
        publish(broker, queue, range(3))
        waiting.cancel()
        await asyncio.wait({waiting})
        got = await until(source, 3)
        assert numbers(got) == [0, 1, 2]
        for delivery in got:
            await source.give_back(delivery)
        waiting = asyncio.create_task(source.receive(10))
        await asyncio.sleep(0.05)
        waiting.cancel()
        await asyncio.wait({waiting})
        assert not waiting.cancelled()  # what is there is returned without a wait that could be cancelled
        assert numbers(list(waiting.result())) == [0, 1, 2]


async def test_a_queue_that_is_deleted_is_said_and_consumed_from_when_it_is_there_again(
    broker: RabbitBroker, queue: str
) -> None:
    async with opened(broker, queue) as source:
        assert await source.receive(10) == []
        await asyncio.to_thread(broker.ask, lambda channel: channel.queue_delete(queue))
        with pytest.raises(QueueMissing, match=f"There is no queue '{queue}'"):
            await until_again(source, 1)
        broker.prepare(queue)
        publish(broker, queue, range(2))
        assert numbers(await until(source, 2)) == [0, 1]


async def test_a_login_that_is_refused_and_a_broker_that_is_away_are_said(broker: RabbitBroker) -> None:
    for url in (f"amqp://guest:wrong@127.0.0.1:{broker.port}/", f"{broker.url}nowhere"):
        with pytest.raises(LoginRefused):
            await RabbitSource(url, queue="orders").receive(1)
    with pytest.raises(Unreachable):
        await RabbitSource("amqp://127.0.0.1:1/", queue="orders").receive(1)


async def test_a_queue_that_the_login_may_not_use_is_said(broker: RabbitBroker) -> None:
    name = f"orders-{uuid4().hex}"
    async with await aio_pika.connect(broker.url) as connection:
        other = await (await connection.channel()).declare_queue(name, durable=True)
        await other.consume(ignore, exclusive=True)
        async with opened(broker, name) as source:
            with pytest.raises(LoginRefused, match="does not let this login use"):
                await source.receive(1)


@pytest.mark.parametrize("mode", ["binary", "structured"])
async def test_what_our_transport_publishes_is_read_with_its_key(broker: RabbitBroker, queue: str, mode: Any) -> None:
    transport = broker.transport(broker.port, queue, cloudevents=CloudEvents("/shop", mode=mode))
    attempt = make_attempt({"n": 1}, order_by="kä 1", kind="order.placed")
    await transport.send(attempt)
    await transport.aclose()
    async with opened(broker, queue) as source:
        (delivery,) = await until(source, 1)
    assert (delivery.order_by, delivery.id) == ("kä 1", f"{queue}:{attempt.token}")
    found = read_event(delivery.headers, delivery.content_type, delivery.body)
    assert (found.id, found.source, found.type) == (str(attempt.id), "/shop", "order.placed")
    assert (found.subject, found.data) == ("kä 1", {"n": 1})


async def test_headers_of_other_types_are_read_as_text_and_tables_are_left_out(
    broker: RabbitBroker, queue: str
) -> None:
    time = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    values: Any = {"a": "x", "b": True, "c": 7, "d": time, "e": bytearray("grün".encode())}
    headers: Any = {**values, "x-death": [{"count": 1}], "nothing": None}
    put(broker, queue, aio_pika.Message(b"{}", headers=headers, content_type="text/plain"))
    async with opened(broker, queue) as source:
        (delivery,) = await until(source, 1)
    assert delivery.headers == {"a": "x", "b": "true", "c": "7", "d": "2026-01-02T03:04:05Z", "e": "grün"}
    assert (delivery.content_type, delivery.order_by) == ("text/plain", None)


async def test_messages_without_an_id_are_not_taken_for_one_another(broker: RabbitBroker, queue: str) -> None:
    async def put_without_id(channel: AbstractChannel) -> None:
        """aio-pika gives an id to each message that has none."""
        underlay: Any = await channel.get_underlay_channel()
        frames: list[Any] = [Basic.Publish(routing_key=queue), ContentHeader(body_size=4), ContentBody(b"same")]
        for _ in range(2):
            await underlay.write_queue.put(ChannelFrame.marshall(underlay.number, frames))
        await channel.declare_queue(queue, passive=True)

    broker.ask(put_without_id)
    async with opened(broker, queue) as source:
        got = await until(source, 2)
    async with opened(broker, queue) as source:
        got += await until(source, 2)
    assert [delivery.handle.message.message_id for delivery in got] == [None] * 4
    assert len({delivery.id for delivery in got}) == 4


@pytest.mark.parametrize("wrong", [{"url": "http://127.0.0.1/"}, {"queue": ""}, {"connect_seconds": 0}])
def test_a_value_out_of_bounds_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        RabbitSource(**{"url": "amqp://127.0.0.1:1/", "queue": "orders", **wrong})
