"""A broker's own client, with nothing of Redrive: `python -m redrive.bench.bare`, settings as JSON on standard input.

What the broker rows of the benchmark are compared with. `publish`: so many messages may wait for their confirms at
once. `consume`: each message is an INSERT in a transaction of its own, then acknowledged; without a DSN it is only
acknowledged. It says "ready", and prints the moments of its beginning and its end.
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, Self

import psycopg

from redrive.bench.database import PAYLOAD

IN_FLIGHT = 100  # messages that wait for their confirms; also how many are fetched at a time
CONCURRENCY = 10  # connections to PostgreSQL, as a consumer has by default
INSERT = "INSERT INTO bench_effect (consumer, id) VALUES (%s, %s)"

Ack = Callable[[], Awaitable[object]]


class Client(Protocol):
    """place: a stream or a queue. name: the durable name or group."""

    async def publish(self, place: str, count: int) -> None: ...

    async def fetch(self, place: str, name: str) -> list[tuple[str, Ack]]:
        """The ids of the next messages, and how each is acknowledged."""
        ...

    async def close(self) -> None: ...


def headers_of(number: int) -> dict[str, str]:
    """Of a CloudEvent, as a transport sends them."""
    return {
        "ce-specversion": "1.0",
        "ce-id": str(number),
        "ce-source": "/bench",
        "ce-type": "bench",
        "content-type": "application/json",
    }


class NatsClient:
    """nats-py: `publish` waits for the stream's acknowledgement, `ack_sync` for the server's answer."""

    def __init__(self, client: Any) -> None:
        self._client, self._stream = client, client.jetstream()
        self._pull: Any = None

    @classmethod
    async def connected(cls, url: str) -> Self:
        import nats

        return cls(await nats.connect(url))

    async def publish(self, place: str, count: int) -> None:
        await self._stream.add_stream(name=place, subjects=[f"{place}.>"])
        await _at_once(count, lambda n: self._stream.publish(f"{place}.-", PAYLOAD, headers=headers_of(n)))

    async def fetch(self, place: str, name: str) -> list[tuple[str, Ack]]:
        self._pull = self._pull or await self._stream.pull_subscribe("", durable=name, stream=place)
        messages = await self._pull.fetch(IN_FLIGHT, timeout=5)
        return [(message.headers["ce-id"], message.ack_sync) for message in messages]

    async def close(self) -> None:
        await self._client.close()


class RedisClient:
    """redis-py: XADD in pipelines of 100, XREADGROUP, XACK."""

    def __init__(self, client: Any) -> None:
        self._client, self._groups = client, set[str]()

    @classmethod
    async def connected(cls, url: str) -> Self:
        from redis.asyncio import Redis

        return cls(Redis.from_url(url))

    async def publish(self, place: str, count: int) -> None:
        for start in range(0, count, IN_FLIGHT):
            pipeline = self._client.pipeline(transaction=False)
            for number in range(start, min(start + IN_FLIGHT, count)):
                pipeline.xadd(place, {**headers_of(number), "data": PAYLOAD})
            await pipeline.execute()

    async def fetch(self, place: str, name: str) -> list[tuple[str, Ack]]:
        if name not in self._groups:
            await self._client.xgroup_create(place, name, id="0-0", mkstream=True)
            self._groups.add(name)
        found = await self._client.xreadgroup(name, "bare", {place: ">"}, count=IN_FLIGHT, block=5000)
        streams = list(found.values()) if isinstance(found, dict) else [entries for _, entries in found or ()]
        flat = [one for entries in streams for one in (entries[0] if isinstance(entries[0], list) else entries)]
        return [(fields[b"ce-id"].decode(), self._ack(place, name, id_)) for id_, fields in flat]

    def _ack(self, place: str, name: str, id_: bytes) -> Ack:
        return lambda: self._client.xack(place, name, id_)

    async def close(self) -> None:
        await self._client.aclose()


class RabbitClient:
    """aio-pika: persistent messages to a durable queue, each with its publisher confirm; a consumer with a prefetch."""

    def __init__(self, connection: Any, channel: Any) -> None:
        self._connection, self._channel = connection, channel
        self._came: asyncio.Queue[Any] | None = None

    @classmethod
    async def connected(cls, url: str) -> Self:
        import aio_pika

        connection = await aio_pika.connect(url)
        return cls(connection, await connection.channel())

    async def publish(self, place: str, count: int) -> None:
        from aio_pika import DeliveryMode, Message

        await self._channel.declare_queue(place, durable=True)
        exchange = self._channel.default_exchange

        def send(number: int) -> Awaitable[object]:
            headers: Any = headers_of(number)
            message = Message(PAYLOAD, headers=headers, delivery_mode=DeliveryMode.PERSISTENT)
            sent: Awaitable[object] = exchange.publish(message, place, mandatory=True)
            return sent

        await _at_once(count, send)

    async def fetch(self, place: str, name: str) -> list[tuple[str, Ack]]:  # noqa: ARG002 - a queue has one consumer
        if self._came is None:
            self._came = asyncio.Queue()
            await self._channel.set_qos(prefetch_count=IN_FLIGHT)
            await (await self._channel.get_queue(place)).consume(self._came.put)
        messages = [await self._came.get()]
        while not self._came.empty():
            messages.append(self._came.get_nowait())
        return [(str(message.headers["ce-id"]), message.ack) for message in messages]

    async def close(self) -> None:
        await self._connection.close()


CLIENTS: Mapping[str, Callable[[str], Awaitable[Client]]] = {
    "nats": NatsClient.connected,
    "redis": RedisClient.connected,
    "rabbitmq": RabbitClient.connected,
}


async def _at_once(count: int, send: Callable[[int], Awaitable[object]]) -> None:
    """As many as IN_FLIGHT wait for their confirms."""
    numbers = iter(range(count))

    async def sender() -> None:
        for number in numbers:
            await send(number)

    await asyncio.gather(*(sender() for _ in range(IN_FLIGHT)))


async def consume(client: Client, settings: Mapping[str, Any]) -> None:
    """Fetches again when all of the last batch have begun, so that no connection waits for the others."""
    place, name, count, dsn = settings["place"], settings["name"], int(settings["count"]), settings.get("dsn")
    waiting: asyncio.Queue[tuple[str, Ack] | None] = asyncio.Queue(maxsize=IN_FLIGHT)

    async def work(conn: psycopg.AsyncConnection[Any] | None) -> None:
        while (one := await waiting.get()) is not None:
            id_, ack = one
            if conn is not None:
                await conn.execute(INSERT, [name, id_])
            await ack()

    conns = [await psycopg.AsyncConnection.connect(dsn, autocommit=True) if dsn else None for _ in range(CONCURRENCY)]
    working = [asyncio.create_task(work(conn)) for conn in conns]
    came = 0
    while came < count:
        for one in await client.fetch(place, name):
            await waiting.put(one)
            came += 1
    for _ in working:
        await waiting.put(None)
    await asyncio.gather(*working)
    for conn in filter(None, conns):
        await conn.close()


async def run(settings: Mapping[str, Any]) -> dict[str, float]:
    client = await CLIENTS[settings["broker"]](settings["url"])
    print("ready", flush=True)
    began = time.monotonic()
    if settings["act"] == "publish":
        await client.publish(settings["place"], int(settings["count"]))
    else:
        await consume(client, settings)
    ended = time.monotonic()
    await client.close()
    return {"began": began, "ended": ended}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(run(json.loads(sys.stdin.readline())))))
