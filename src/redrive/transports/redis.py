"""Messages appended to Redis (or Valkey) streams with XADD.

    app.transport("events", RedisTransport("redis://redis.internal:6379/0", stream="orders"))

All sends share one connection: what is waiting when it is free goes out as one pipeline, and is answered in one round
trip. Redis does not deduplicate: a message that is sent again after a lost reply is in the stream twice, with the same
`idempotency-key`. Fields of an entry: `data` (the body), `content-type`, the message's headers, the token and the
ordering key.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final

from redis.asyncio import Redis
from redis.asyncio.connection import Connection as RedisConnection
from redis.asyncio.connection import ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    ClusterDownError,
    MasterDownError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TryAgainError,
)

from redrive.answers import Answer, Delivered, Retryable, Terminal
from redrive.errors import InvalidValue
from redrive.message import Attempt
from redrive.policy import address_of
from redrive.ports import NotBegun
from redrive.ports.broker_risks import BrokerRisk
from redrive.transports import brokers
from redrive.transports.broker_risks import REDIS_SETTINGS, UNKNOWN, redis_risks
from redrive.transports.brokers import CONFIRM_SECONDS, CONNECT_SECONDS, Connection, Name, Naming
from redrive.transports.cloudevents import CloudEvents

__all__ = ["CloudEvents", "RedisTransport", "connection"]

BODY_FIELD: Final = "data"
CLOSED: Final = "The connection was closed."
MESSAGE_BYTES_MAX: Final = 512 * 1024 * 1024  # `proto-max-bulk-len` of a server that says nothing else
PIPELINE_MAX: Final = 500  # commands of one round trip
PIPELINE_BYTES_MAX: Final = 4 * 1024 * 1024
# The server takes no writes for now; and the first words of such errors for which the client library has no type.
_BUSY_TYPES: Final = (
    BusyLoadingError,
    ClusterDownError,
    MasterDownError,
    OutOfMemoryError,
    ReadOnlyError,
    TryAgainError,
)
_BUSY_WORDS: Final = frozenset({"MISCONF", "NOREPLICAS", "BUSY"})


def connection(
    url: str, *, connect_seconds: float = CONNECT_SECONDS, reply_seconds: float = CONFIRM_SECONDS
) -> Connection[Wire]:
    """A connection that never repeats a command by itself: after a lost reply that would be a second message."""
    pool: Any = ConnectionPool.from_url(
        url, socket_connect_timeout=connect_seconds, retry=Retry(NoBackoff(), 0), health_check_interval=0
    )

    async def open_wire() -> Wire:
        made: Any = pool.make_connection()
        try:
            await made.connect()
        except (AuthenticationError, AuthorizationError) as error:
            raise brokers.login_refused() from error
        except RedisError as error:
            raise brokers.not_connected(error) from error
        return Wire(made, reply_seconds=reply_seconds)

    return Connection(open_wire, is_open=Wire.is_open, close=Wire.close, connect_seconds=connect_seconds)


class RedisTransport:
    """Appends to a stream.

    url: `redis://`, `rediss://` or `unix://`. stream: a function of the attempt, or a text with `{order_by}`, `{kind}`,
    `{tenant}`, `{destination}` in it. create: make a stream that is not there; False = STREAM_MISSING. length_max: the
    stream is trimmed to about so many entries, read or not; None = it is not trimmed. message_bytes_max: what is larger
    is refused, at most the server's `proto-max-bulk-len`. confirm_seconds: how long a reply is waited for; after that
    it is Unknown.
    """

    def __init__(
        self,
        url: str,
        *,
        stream: Name,
        create: bool = True,
        length_max: int | None = None,
        message_bytes_max: int = MESSAGE_BYTES_MAX,
        cloudevents: CloudEvents | None = None,
        connect_seconds: float = CONNECT_SECONDS,
        confirm_seconds: float = CONFIRM_SECONDS,
    ) -> None:
        if length_max is not None and length_max < 1:
            raise InvalidValue(f"length_max is {length_max}; it must be at least 1, or None.")
        brokers.require_confirm_seconds(confirm_seconds)
        self._url, self._stream = url, Naming("stream", stream)
        self._options = [*([] if create else ["NOMKSTREAM"]), *(["MAXLEN", "~", length_max] if length_max else [])]
        self._bytes_max, self._cloudevents = message_bytes_max, cloudevents
        try:
            self._connection = connection(url, connect_seconds=connect_seconds, reply_seconds=confirm_seconds)
        except ValueError as error:
            raise InvalidValue("url must begin with redis://, rediss:// or unix://.") from error
        self.address = address_of(url, stream) if isinstance(stream, str) else None

    async def send(self, attempt: Attempt) -> Answer:
        stream = self._stream.of(attempt)
        message = brokers.envelope(attempt, self._cloudevents, prefix="ce-")
        if len(message.body) > self._bytes_max:
            return brokers.too_large(len(message.body), self._bytes_max)
        fields = {**message.headers, "content-type": message.content_type, BODY_FIELD: message.body}
        command = ["XADD", stream, *self._options, "*", *(part for field in fields.items() for part in field)]
        wire = await brokers.connected(self._connection)
        return await wire.append(command, size=len(message.body))

    async def aclose(self) -> None:
        await self._connection.aclose()

    async def broker_risks(self, *, inbox_seconds: float | None) -> Sequence[BrokerRisk]:  # noqa: ARG002
        return await redis_server_risks(self._url)


async def redis_server_risks(url: str) -> Sequence[BrokerRisk]:
    """A login that may not ask for the settings is told so."""
    client: Any = Redis.from_url(url, socket_connect_timeout=CONNECT_SECONDS, socket_timeout=CONFIRM_SECONDS)
    try:
        told: Mapping[str, str] = await client.config_get(*REDIS_SETTINGS)
    except (ResponseError, AuthorizationError):
        return [UNKNOWN]
    finally:
        await client.aclose()
    return list(redis_risks({_word(name): _word(value) for name, value in told.items()}))


def _word(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


class _Waiting:
    """A command on its way. has_begun: it may be on the wire."""

    def __init__(self, command: Sequence[Any], size: int) -> None:
        self.command, self.size = command, size
        self.has_begun = False
        self.reply: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()


class Wire:
    """One connection to Redis, and the commands that wait for it."""

    def __init__(self, connection: RedisConnection, *, reply_seconds: float) -> None:
        self._connection, self._reply_seconds = connection, reply_seconds
        self._queue: deque[_Waiting] = deque()
        self._work: asyncio.Task[None] | None = None
        self._is_closed = False

    def is_open(self) -> bool:
        """A server that has hung up is noticed by the end of its stream, also while nothing is being read."""
        reader = self._connection._reader
        return reader is not None and not reader.at_eof() and reader.exception() is None

    async def close(self) -> None:
        self._is_closed = True
        if self._work is not None:
            self._work.cancel()
        self._fail([*self._queue])
        self._queue.clear()
        await self._connection.disconnect(nowait=True)

    async def append(self, command: Sequence[Any], *, size: int) -> Answer:
        if self._is_closed or not self.is_open():  # the library would open it again, unseen
            return brokers.down(CLOSED)
        seconds = self._reply_seconds
        waiting = _Waiting(command, size)
        self._queue.append(waiting)
        if self._work is None or self._work.done():
            self._work = asyncio.get_running_loop().create_task(self._run())
        try:
            async with asyncio.timeout(seconds):
                return await waiting.reply
        except TimeoutError:
            if waiting.has_begun:
                return brokers.confirm_lost(seconds)
            return Retryable(brokers.BROKER_BUSY, f"Not sent within {seconds} s: earlier messages wait for replies.")
        except asyncio.CancelledError:
            if waiting.has_begun:
                raise
            raise NotBegun from None

    async def _run(self) -> None:
        """Pipelines, one after the other, for as long as there is something to send."""
        while batch := self._next_batch():
            try:
                async with asyncio.timeout(self._reply_seconds):
                    await self._pipeline(batch)
            except (RedisError, OSError) as error:  # TimeoutError is an OSError
                self._lost(batch, error)
                await self._connection.disconnect(nowait=True)
                return
            except asyncio.CancelledError:
                self._fail(batch)
                raise

    def _next_batch(self) -> list[_Waiting]:
        batch: list[_Waiting] = []
        size = 0
        while self._queue and len(batch) < PIPELINE_MAX and (not batch or size < PIPELINE_BYTES_MAX):
            waiting = self._queue.popleft()
            if not waiting.reply.done():  # else it was cut off before it began
                batch.append(waiting)
                size += waiting.size
        return batch

    async def _pipeline(self, batch: Sequence[_Waiting]) -> None:
        packed = self._connection.pack_commands([waiting.command for waiting in batch])
        for waiting in batch:
            waiting.has_begun = True
        await self._connection.send_packed_command(packed, check_health=False)
        for waiting in batch:
            try:
                answer = _answer(await self._connection.read_response(disconnect_on_error=False))
            except (ResponseError, BusyLoadingError) as error:
                answer = _refused(error)
            _settle(waiting, answer)

    def _lost(self, batch: Sequence[_Waiting], error: BaseException) -> None:
        self._fail(batch)
        for waiting in self._queue:
            _settle(waiting, brokers.not_connected(error))
        self._queue.clear()

    @staticmethod
    def _fail(batch: Sequence[_Waiting]) -> None:
        """What may be on the wire is in doubt; what is not can be sent again."""
        for waiting in batch:
            _settle(waiting, brokers.confirm_lost() if waiting.has_begun else brokers.down(CLOSED))


def _settle(waiting: _Waiting, answer: Answer) -> None:
    if not waiting.reply.done():
        waiting.reply.set_result(answer)


def _answer(reply: Any) -> Answer:
    if reply is None:
        return Retryable(brokers.STREAM_MISSING, "The stream is not there, and `create` is false.")
    return Delivered(reply.decode() if isinstance(reply, bytes) else str(reply))


def _refused(error: ResponseError | BusyLoadingError) -> Answer:
    """The server's own word: nothing was appended. By type, else by the first word of the protocol's error."""
    word = str(error).partition(" ")[0]
    if isinstance(error, NoPermissionError):
        return Terminal(brokers.NOT_AUTHORISED, "The user may not write this stream.")
    if isinstance(error, _BUSY_TYPES) or word in _BUSY_WORDS:
        return Retryable(brokers.BROKER_BUSY, f"The server takes no writes now ({type(error).__name__}, {word}).")
    return Terminal(brokers.REFUSED, word)
