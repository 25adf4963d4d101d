"""A stream of Redis or Valkey as a source: a consumer group, acknowledged after the commit. Needs the extra `redis`.

    source=lambda: RedisSource("redis://redis.internal:6379/0", stream="orders", group="billing")

Redis keeps for each name in the group what it has delivered and what was not acknowledged. A worker that starts under
the name of a dead one gets that first, in its order. What a name without a worker has is taken over after
`idle_seconds`.
"""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Final

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ResponseError

from redrive.errors import InvalidValue
from redrive.ports.broker_risks import BrokerRisk
from redrive.ports.sources import Delivery
from redrive.transports.brokers import CONNECT_SECONDS, ORDER_HEADER
from redrive.transports.redis import BODY_FIELD, redis_server_risks

__all__ = ["RedisSource"]

WAIT_MS: Final = 1000
REPLY_SECONDS: Final = 10.0  # longer than Redis waits for a message
IDLE_SECONDS_DEFAULT: Final = 60.0
_BEGINNING: Final = "0-0"

Entry = tuple[bytes, dict[bytes, bytes] | None]


class RedisSource:
    """url: `redis://`, `rediss://` or `unix://`. stream, group: the group is made where it is missing, and then begins
    with the first entry of the stream.

    name: of this worker in the group. Workers that run side by side need a name each; order by key needs one worker.
    idle_seconds: what another name has had for so long is taken over; longer than a message waits in a worker and its
    handler takes.
    """

    def __init__(
        self, url: str, *, stream: str, group: str, name: str = "redrive", idle_seconds: float = IDLE_SECONDS_DEFAULT
    ) -> None:
        if not stream or not group or not name:
            raise InvalidValue("A RedisSource needs a stream, a group, and a name in it; one of them is empty.")
        if not idle_seconds > 0:
            raise InvalidValue(f"idle_seconds is {idle_seconds}; it must be above 0.")
        self._url, self._stream, self._group, self._name = url, stream, group, name
        self._idle_seconds = idle_seconds
        self._client: Any = None
        self._connecting = asyncio.Lock()
        self._in_hand: set[bytes] = set()
        self._delivered_after: bytes | str | None = None  # None: nothing that was delivered before is left
        self._take_over_at = 0.0

    async def receive(self, limit: int, /) -> Sequence[Delivery]:
        try:
            entries = await self._next(await self._connected(), limit)
        except BaseException:  # also when it is cancelled: the reply that was not read may have messages in it
            await self._disconnect()
            raise
        self._in_hand.update(id_ for id_, _ in entries)
        return [self._delivery(id_, fields or {}) for id_, fields in entries]

    async def ack(self, delivery: Delivery, /) -> None:
        """One that is lost costs a redelivery, which the inbox has seen."""
        self._in_hand.discard(delivery.handle)
        try:
            await self._acknowledge([delivery.handle])
        except BaseException:
            self._delivered_after = _BEGINNING
            raise

    async def give_back(self, delivery: Delivery, /) -> None:
        """It stays delivered to this name, and comes again."""
        self._in_hand.discard(delivery.handle)
        self._delivered_after = _BEGINNING

    async def aclose(self) -> None:
        await self._disconnect()

    async def broker_risks(self, *, inbox_seconds: float | None) -> Sequence[BrokerRisk]:  # noqa: ARG002
        """The group delivers again only what was not acknowledged, so that no age of the stream is compared."""
        return await redis_server_risks(self._url)

    async def _next(self, client: Any, limit: int) -> list[Entry]:
        """What this name was given before, then what others left behind, then what is new."""
        if self._delivered_after is not None:
            after, self._delivered_after = self._delivered_after, None
            entries = await self._read(client, limit, after=after)
            if entries and self._delivered_after is None:  # else one was given back meanwhile: from the beginning again
                self._delivered_after = entries[-1][0]
            if entries:
                return await self._wanted(entries)
        now = asyncio.get_running_loop().time()
        if now >= self._take_over_at:
            self._take_over_at = now + self._idle_seconds / 2
            if entries := await self._taken_over(client, limit):
                return await self._wanted(entries)
        return await self._read(client, limit, after=">", block=WAIT_MS)

    async def _read(self, client: Any, limit: int, *, after: bytes | str, block: int | None = None) -> list[Entry]:
        found = await client.xreadgroup(self._group, self._name, {self._stream: after}, count=limit, block=block)
        streams: Iterable[Any] = found.values() if isinstance(found, dict) else (entries for _, entries in found or ())
        return [(id_, fields) for entries in streams for id_, fields in _flat(entries)]

    async def _taken_over(self, client: Any, limit: int) -> list[Entry]:
        idle_ms = max(int(self._idle_seconds * 1000), 1)
        _, entries, *_ = await client.xautoclaim(
            self._stream, self._group, self._name, idle_ms, _BEGINNING, count=limit
        )
        return [(id_, fields) for id_, fields in entries if id_ is not None]

    async def _wanted(self, entries: Sequence[Entry]) -> list[Entry]:
        """Without those in hand, and without those that the stream has trimmed: only their numbers are left."""
        gone = [id_ for id_, fields in entries if not fields]
        if gone:
            await self._acknowledge(gone)
        return [entry for entry in entries if entry[1] and entry[0] not in self._in_hand]

    async def _acknowledge(self, ids: Sequence[bytes]) -> None:
        client = await self._connected()
        await client.xack(self._stream, self._group, *ids)

    async def _connected(self) -> Any:
        async with self._connecting:
            if self._client is None:
                self._client, self._delivered_after = await self._new_client(), _BEGINNING
            return self._client

    async def _new_client(self) -> Any:
        client: Any = Redis.from_url(
            self._url,
            socket_connect_timeout=CONNECT_SECONDS,
            socket_timeout=REPLY_SECONDS,
            retry=Retry(NoBackoff(), 0),
        )
        try:
            await client.xgroup_create(self._stream, self._group, id=_BEGINNING, mkstream=True)
        except ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):
                await client.aclose()
                raise
        except BaseException:
            await client.aclose()
            raise
        return client

    async def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with suppress(Exception):
                await client.aclose()

    def _delivery(self, id_: bytes, fields: dict[bytes, bytes]) -> Delivery:
        headers = {_text(name): _text(value) for name, value in fields.items() if _text(name) != BODY_FIELD}
        return Delivery(
            body=fields.get(BODY_FIELD.encode(), b""),
            headers=headers,
            content_type=headers.get("content-type", ""),
            id=f"{self._stream}:{id_.decode()}",
            order_by=headers.get(ORDER_HEADER),
            handle=id_,
        )


def _flat(entries: Any) -> Iterable[Entry]:
    """RESP3 wraps the entries of a stream in one more list."""
    return entries[0] if entries and isinstance(entries[0], list) else entries


def _text(value: bytes) -> str:
    return value.decode(errors="replace")
