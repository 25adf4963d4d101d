"""Workers on Kafka (librdkafka's mock cluster, or REDRIVE_KAFKA_BOOTSTRAP): killed, cut off, and rebalanced."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from redrive.errors import InvalidValue
from redrive.kit.proof.brokers.proxy import Proxy
from redrive.ports.sources import Delivery
from redrive.sources import kafka as module
from redrive.sources.kafka import KafkaSource
from redrive.sources.kafka_partitions import Assignment, InHand
from redrive.testing import make_attempt
from tests.inbox.kills import EVENTS, check_effects, consume_through_kills, event
from tests.support.waiting import wait_until
from tests.transports.brokers.kafka_broker import KafkaBroker
from tests.transports.brokers.subjects import started

pytestmark = pytest.mark.req("G-23")

# A real cluster wants 6 seconds at least (`group.min.session.timeout.ms`), the mock cluster more than 3.
SESSION = {
    "session.timeout.ms": 6000 if os.environ.get("REDRIVE_KAFKA_BOOTSTRAP") else 3500,
    "heartbeat.interval.ms": 300,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 50,
    "log_level": 0,
}
# Longer where no worker is killed: on a busy machine a short session ends by itself, and what is in hand comes again.
KEPT = {**SESSION, "session.timeout.ms": 6000}
APP = f"""
import asyncio
import os
from redrive import App
from redrive.sources.kafka import KafkaSource

app = App()

@app.consumer("billing", concurrency=4, order="subject", source=lambda: KafkaSource(
    os.environ["KAFKA"], topics=os.environ["TOPIC"], group="billing", config={SESSION!r}))
async def billing(conn, event):
    await conn.execute("INSERT INTO effect (key, n) VALUES (%s, %s)", [event.subject, event.data["n"]])
    await asyncio.sleep(float(os.environ.get("HANDLER_SECONDS", "0")))
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with started(KafkaBroker(tmp_path_factory.mktemp("kafka"))) as running:
        yield running


@pytest.fixture
def topic(broker: KafkaBroker) -> str:
    name = f"orders-{uuid4().hex}"
    broker.prepare(name)
    return name


@asynccontextmanager
async def opened(broker: KafkaBroker, topic: str, *, port: int | None = None, **config: Any) -> AsyncIterator[Any]:
    servers = broker.bootstrap if port is None else f"127.0.0.1:{port}"
    source = KafkaSource(servers, topics=topic, group=f"g-{topic}", config={**KEPT, **config})
    try:
        yield source
    finally:
        await source.aclose()


def publish(broker: KafkaBroker, topic: str, numbers: range, *, partition: int | None = None) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "log_level": 0})
    where: Any = {} if partition is None else {"partition": partition}
    for n in numbers:
        key, attributes, data = event(n)
        headers: Any = [(f"ce_{name}", value.encode()) for name, value in attributes.items()]
        producer.produce(topic, data, key=key.encode(), headers=headers, **where)
    assert producer.flush(30) == 0


def is_all_committed(broker: KafkaBroker, topic: str) -> bool:
    return broker.left(topic, "billing") == 0


def committed(broker: KafkaBroker, topic: str) -> int:
    return broker.offsets(topic, f"g-{topic}")[0][0]


def numbers(deliveries: list[Delivery]) -> list[int]:
    return [int(delivery.headers["ce_id"]) for delivery in deliveries]


async def until(source: KafkaSource, count: int) -> list[Delivery]:
    found: list[Delivery] = []
    while len(found) < count:
        found += await source.receive(count - len(found))
    return found


async def receive_for_ever(source: KafkaSource, found: list[Delivery]) -> None:
    while True:
        found += await source.receive(1)


async def until_true(condition: Callable[[], bool]) -> None:
    await asyncio.to_thread(wait_until, condition, seconds=60.0, what="the condition")


async def acknowledge(source: KafkaSource, deliveries: list[Delivery]) -> None:
    for delivery in deliveries:
        await source.ack(delivery)


@pytest.mark.timeout(900)
async def test_every_event_once_and_in_order_through_kills(
    broker: KafkaBroker, topic: str, database: str, tmp_path: Path
) -> None:
    publish(broker, topic, range(EVENTS))
    await consume_through_kills(APP, database, tmp_path, environment={"KAFKA": broker.bootstrap, "TOPIC": topic})


async def test_every_event_once_and_in_order_while_workers_come_and_go(
    broker: KafkaBroker, topic: str, database: str, tmp_path: Path
) -> None:
    """A second worker joins, the first one is killed, a third one joins: three rebalances, one of them by a timeout."""
    publish(broker, topic, range(EVENTS))
    (tmp_path / "shop_consumer.py").write_text(APP, encoding="utf-8")
    given = {"KAFKA": broker.bootstrap, "TOPIC": topic, "HANDLER_SECONDS": "0.03"}
    environment = {**os.environ, **given, "PYTHONPATH": str(tmp_path), "REDRIVE_DSN": database}
    command = [sys.executable, "-m", "redrive", "worker", "shop_consumer:app", "--log-level", "error"]
    workers: list[subprocess.Popen[bytes]] = []
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("CREATE TABLE effect (number bigserial, key text, n int)")

        def reached(share: float) -> Callable[[], bool]:
            count = "SELECT count(*) >= %s FROM effect"
            return lambda: conn.execute(count, [int(EVENTS * share)]).fetchone() == (True,)

        def begin() -> None:
            workers.append(subprocess.Popen(command, env=environment))

        try:
            begin()
            await until_true(reached(0.05))
            begin()
            await until_true(reached(0.4))
            workers[0].kill()
            begin()
            await until_true(reached(1))
            await until_true(lambda: is_all_committed(broker, topic))
        finally:
            for worker in workers:
                worker.terminate()
            codes = [worker.wait(60) for worker in workers]
        assert codes[1:] == [0, 0]
        check_effects(conn)


async def test_an_offset_is_committed_up_to_the_first_unfinished_message(broker: KafkaBroker, topic: str) -> None:
    publish(broker, topic, range(5), partition=0)
    async with opened(broker, topic) as source:
        got = await until(source, 5)
        await acknowledge(source, [got[0], got[1], got[3], got[4]])
        await until_true(lambda: committed(broker, topic) == 2)
    assert committed(broker, topic) == 2
    async with opened(broker, topic) as source:
        assert numbers(await until(source, 3)) == [2, 3, 4]


async def test_what_is_given_back_comes_again_here_and_is_not_committed(broker: KafkaBroker, topic: str) -> None:
    publish(broker, topic, range(3), partition=0)
    async with opened(broker, topic) as source:
        first, second, third = await until(source, 3)
        await source.give_back(second)
        await source.give_back(first)
        assert numbers(await until(source, 2)) == [0, 1]
        await acknowledge(source, [first, third])
        await until_true(lambda: committed(broker, topic) == 1)


async def test_a_revoked_partition_takes_its_unfinished_messages_with_it(broker: KafkaBroker, topic: str) -> None:
    for partition in range(4):
        publish(broker, topic, range(10 * partition, 10 * partition + 10), partition=partition)
    async with opened(broker, topic) as first:
        old = await until(first, 40)
        await acknowledge(first, [delivery for delivery in old if delivery.handle.offset < 3])
        await until_true(lambda: broker.offsets(topic, f"g-{topic}")[0] == dict.fromkeys(range(4), 3))
        async with opened(broker, topic) as second:
            new: tuple[list[Delivery], list[Delivery]] = [], []
            unfinished = [10 * partition + offset for partition in range(4) for offset in range(3, 10)]

            def have_all() -> bool:
                return min(len(found) for found in new) > 0 and {*numbers(new[0]), *numbers(new[1])} == set(unfinished)

            async def receive(source: KafkaSource, found: list[Delivery]) -> None:
                while not have_all():
                    found += await source.receive(40)

            await asyncio.gather(receive(first, new[0]), receive(second, new[1]))
            for assignment in {delivery.handle.assignment for delivery in [*new[0], *new[1]]}:
                own = [delivery.handle.offset for delivery in [*new[0], *new[1]] if delivery.handle[1] is assignment]
                assert own == list(range(3, 3 + len(own)))
            await acknowledge(first, old)  # of an assignment that has ended: it says nothing
            await first.give_back(old[-1])
            await asyncio.sleep(3 * module.COMMIT_SECONDS)
        done, _ = broker.offsets(topic, f"g-{topic}")
        assert done == dict.fromkeys(range(4), 3)


async def test_polling_goes_on_while_handlers_are_slow_and_no_more_is_taken(
    broker: KafkaBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WAIT_SECONDS", 0.1)
    publish(broker, topic, range(50), partition=0)
    limits = {"max.poll.interval.ms": 4000, "session.timeout.ms": 3500}
    async with opened(broker, topic, **limits) as source:
        (first,) = await until(source, 1)
        assert source._poller is not None
        await asyncio.sleep(6)
        assert source._poller._in_hand.ready == 0
        assert (topic, 0) in source._poller._paused
        await source.ack(first)
        await until_true(lambda: committed(broker, topic) == 1)  # still a member, with the same assignment
        assert numbers(await until(source, 49)) == list(range(1, 50))


async def test_while_the_worker_does_not_come_to_take_them_no_more_are_ready_than_it_wanted(
    broker: KafkaBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WAIT_SECONDS", 0.1)
    publish(broker, topic, range(50), partition=0)
    async with opened(broker, topic) as source:
        (first,) = await until(source, 1)
        poller = source._poller
        wait_until(lambda: (topic, 0) in poller._paused, seconds=30, what="the pause")
        monkeypatch.setattr(module, "WAIT_SECONDS", 30)
        waiting = asyncio.create_task(source.receive(5))
        await asyncio.sleep(0)
        monkeypatch.setattr(module, "WAIT_SECONDS", 0.1)
        wait_until(lambda: poller._in_hand.ready > 0, seconds=30, what="the first message")  # in the loop's own thread
        wait_until(lambda: poller._in_hand.ready > 5 or poller._paused, seconds=30, what="the pause")
        assert poller._in_hand.ready == 5
        assert numbers(await waiting) == [1, 2, 3, 4, 5]
        await acknowledge(source, [first])


async def test_after_lost_connections_nothing_is_lost_and_what_is_in_hand_does_not_come_again(
    broker: KafkaBroker, topic: str
) -> None:
    publish(broker, topic, range(10), partition=0)
    async with Proxy(broker.port) as proxy:
        proxy.rewrite = lambda said: broker.rewrite(said, proxy.port)
        async with opened(broker, topic, port=proxy.port, **{"session.timeout.ms": 60_000}) as source:
            got = await until(source, 5)
            await proxy.refuse()
            with pytest.raises(KafkaException):
                await receive_for_ever(source, got)
            await proxy.accept()
            publish(broker, topic, range(10, 20), partition=0)
            for _ in range(10):
                await proxy.cut()
                with suppress(KafkaException):
                    got += await source.receive(1)
            while len(got) < 20:
                with suppress(KafkaException):
                    got += await source.receive(5)
            assert numbers(got) == list(range(20))
            await acknowledge(source, got)
            await until_true(lambda: committed(broker, topic) == 20)


async def test_a_cancelled_receive_loses_nothing(broker: KafkaBroker, topic: str) -> None:
    publish(broker, topic, range(1), partition=0)
    async with opened(broker, topic) as source:
        await until(source, 1)
        waiting = asyncio.create_task(source.receive(10))
        await asyncio.sleep(0.05)
        waiting.cancel()
        await asyncio.wait({waiting})
        publish(broker, topic, range(1, 4), partition=0)
        assert numbers(await until(source, 3)) == [1, 2, 3]


async def test_a_broker_that_is_away_is_said_and_the_source_closes() -> None:
    source = KafkaSource("127.0.0.1:1", topics="orders", group="billing", config={"log_level": 0})
    with pytest.raises(KafkaException):
        await receive_for_ever(source, [])
    await source.aclose()


async def test_a_consumer_that_is_broken_for_good_is_made_anew(broker: KafkaBroker, topic: str) -> None:
    publish(broker, topic, range(2), partition=0)
    async with opened(broker, topic) as source:
        (first, _) = await until(source, 2)
        await source.ack(first)
        source._poller._on_error(KafkaError(KafkaError.FENCED_INSTANCE_ID, "fenced", fatal=True))
        with pytest.raises(KafkaException):
            await receive_for_ever(source, [])
        assert numbers(await until(source, 1)) == [1]


async def test_a_commit_that_kafka_refuses_is_said_unless_it_came_too_late(broker: KafkaBroker, topic: str) -> None:
    publish(broker, topic, range(1), partition=0)
    async with opened(broker, topic) as source:
        await until(source, 1)
        source._poller._on_commit(KafkaError(KafkaError.REBALANCE_IN_PROGRESS), [])
        assert await source.receive(1) == []
        source._poller._on_commit(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED), [])
        with pytest.raises(KafkaException):
            await source.receive(1)


def test_a_position_that_kafka_refused_is_asked_for_again() -> None:
    in_hand = InHand()
    in_hand.assign([("orders", 0)])
    in_hand._assigned["orders", 0].add(6)
    assert [one.offset for one in in_hand.to_commit()] == [6]
    assert in_hand.to_commit() == []
    in_hand.not_committed([("orders", 0), ("orders", 1)])
    assert [one.offset for one in in_hand.to_commit([("orders", 0)])] == [6]
    in_hand.revoke([("orders", 0)])
    assert in_hand.to_commit([("orders", 0)]) == []


def received(in_hand: InHand, offset: int) -> None:
    in_hand.add(Message(topic="orders", partition=0, offset=offset, key=b"k", value=b"{}", headers=[]))


def test_what_a_partition_had_when_it_was_revoked_is_nothing_to_its_next_assignment() -> None:
    in_hand = InHand()
    in_hand.assign([("orders", 0)])
    for offset in (3, 4, 5):
        received(in_hand, offset)
    old = in_hand.take(2)
    in_hand.revoke([("orders", 0)])
    assert in_hand.ready == 0
    in_hand.assign([("orders", 0)])
    received(in_hand, 3)
    for delivery in old:
        in_hand.finish(delivery)
        in_hand.give_back(delivery)
    assert [one.offset for one in in_hand.to_commit()] == [3]
    assert [delivery.handle.offset for delivery in in_hand.take(10)] == [3]


def test_what_is_given_back_is_ready_in_its_place() -> None:
    in_hand = InHand()
    in_hand.assign([("orders", 0)])
    for offset in (3, 4, 5):
        received(in_hand, offset)
    first, second = in_hand.take(2)
    in_hand.give_back(second)
    in_hand.give_back(first)
    assert [delivery.handle.offset for delivery in in_hand.take(10)] == [3, 4, 5]


async def test_what_our_transport_publishes_is_read_with_its_key(broker: KafkaBroker, topic: str) -> None:
    transport = broker.transport(broker.port, topic)
    await transport.send(make_attempt({"n": 1}, order_by="k1"))
    await transport.aclose()
    async with opened(broker, topic) as source:
        (delivery,) = await until(source, 1)
    assert (delivery.order_by, delivery.content_type, delivery.body) == ("k1", "application/json", b'{"n":1}')


def test_a_topic_that_was_made_anew_is_committed_from_its_beginning() -> None:
    one = Assignment("orders", 0)
    assert one.position is None
    for offset in (7, 9, 0):
        one.add(offset)
        one.unfinished.discard(offset)
    assert one.position == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"topics": ""},
        {"topics": []},
        {"topics": ["a", ""]},
        {"group": ""},
        {"config": {"enable.auto.commit": True}},
        {"config": {"on_commit": print}},
        {"config": {"auto.offset.reset": "latest"}},
    ],
)
def test_a_value_that_could_lose_messages_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        KafkaSource("127.0.0.1:1", **{"topics": "orders", "group": "billing", **wrong})
