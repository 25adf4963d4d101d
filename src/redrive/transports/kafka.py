"""Messages produced to Kafka with `enable.idempotence` and `acks=all`.

    app.transport("events", KafkaTransport("kafka.internal:9092", topic="orders"))

The ordering key is the record's key, so that messages of one key are in one partition. librdkafka batches what is sent
at the same time, and repeats a request whose reply was lost without storing it twice, for as long as `confirm_seconds`.
What is sent again after that, by another attempt, is another record with the same `idempotency-key`.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from redrive.answers import Answer, Delivered, Retryable, Terminal
from redrive.errors import InvalidValue
from redrive.message import Attempt
from redrive.policy import address_of
from redrive.transports import brokers
from redrive.transports.brokers import CONFIRM_SECONDS, CONNECT_SECONDS, Connection, Envelope, Name, Naming
from redrive.transports.cloudevents import CloudEvents

__all__ = ["CloudEvents", "KafkaTransport", "connection"]

MESSAGE_BYTES_MAX: Final = 1_000_000  # `message.max.bytes` of a client and a broker that say nothing else
POLL_SECONDS: Final = 0.1
LINGER_MILLISECONDS: Final = 5
_TOPIC: Final = re.compile(r"(?!\.\.?$)[A-Za-z0-9._-]{1,249}")
_OWN_OPTIONS: Final = frozenset(
    {"bootstrap.servers", "enable.idempotence", "acks", "message.timeout.ms", "message.max.bytes"}
)
_LOGIN_REFUSED: Final = frozenset({KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED})
# The errors which say that the message was not stored. Every other one leaves that open.
_NOT_STORED: Final[dict[int, tuple[type[Retryable | Terminal], str]]] = {
    KafkaError._PURGE_QUEUE: (Retryable, brokers.BROKER_DOWN),
    KafkaError._QUEUE_FULL: (Retryable, brokers.BROKER_BUSY),
    KafkaError._UNKNOWN_TOPIC: (Retryable, brokers.STREAM_MISSING),
    KafkaError._UNKNOWN_PARTITION: (Retryable, brokers.STREAM_MISSING),
    KafkaError.UNKNOWN_TOPIC_OR_PART: (Retryable, brokers.STREAM_MISSING),
    KafkaError.TOPIC_AUTHORIZATION_FAILED: (Terminal, brokers.NOT_AUTHORISED),
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: (Terminal, brokers.NOT_AUTHORISED),
    KafkaError.MSG_SIZE_TOO_LARGE: (Terminal, brokers.TOO_LARGE),
    KafkaError.TOPIC_EXCEPTION: (Terminal, brokers.REFUSED),
    KafkaError.POLICY_VIOLATION: (Terminal, brokers.REFUSED),
    KafkaError.INVALID_RECORD: (Terminal, brokers.REFUSED),
    KafkaError._INVALID_ARG: (Terminal, brokers.REFUSED),
}


def connection(
    bootstrap_servers: str,
    *,
    config: Mapping[str, Any] | None = None,
    connect_seconds: float = CONNECT_SECONDS,
    confirm_seconds: float = CONFIRM_SECONDS,
) -> Connection[Wire]:
    """A producer that has reached the cluster. It reconnects by itself; it is given nothing while no broker can be
    reached."""
    options = {
        "linger.ms": LINGER_MILLISECONDS,
        "topic.metadata.propagation.max.ms": int(confirm_seconds * 500),
        **(config or {}),
        "bootstrap.servers": bootstrap_servers,
        "enable.idempotence": True,
        "acks": "all",
        "message.timeout.ms": int(confirm_seconds * 1000),
    }

    async def open_wire() -> Wire:
        wire = Wire(options)
        try:
            await wire.reach(connect_seconds)
        except BaseException:
            await wire.close()
            raise
        return wire

    async def revive(wire: Wire) -> bool:
        if wire.is_spent:
            return False
        await wire.reach(connect_seconds)
        return True

    return Connection(
        open_wire, is_open=Wire.is_open, close=Wire.close, revive=revive, connect_seconds=connect_seconds + 1
    )


class KafkaTransport:
    """Produces records to a topic.

    bootstrap_servers: `host:port`, several with commas between them. topic: a function of the attempt, or a text with
    `{kind}`, `{tenant}`, `{destination}` in it. config: further options of librdkafka, such as `security.protocol` and
    `sasl.password`. message_bytes_max: what is larger, with key and headers, is refused; at most `message.max.bytes` of
    the topic. confirm_seconds: how long a confirm is waited for; after that it is Unknown.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        topic: Name,
        config: Mapping[str, str] | None = None,
        message_bytes_max: int = MESSAGE_BYTES_MAX,
        cloudevents: CloudEvents | None = None,
        connect_seconds: float = CONNECT_SECONDS,
        confirm_seconds: float = CONFIRM_SECONDS,
    ) -> None:
        refused = sorted(_OWN_OPTIONS & set(config or {}))
        if refused:
            raise InvalidValue(f"config has {refused[0]!r}, which the transport sets itself.")
        brokers.require_confirm_seconds(confirm_seconds)
        self._topic = Naming("topic", topic)
        self._bytes_max, self._cloudevents = message_bytes_max, cloudevents
        self._connection = connection(
            bootstrap_servers,
            config={**(config or {}), "message.max.bytes": message_bytes_max},
            connect_seconds=connect_seconds,
            confirm_seconds=confirm_seconds,
        )
        self.address = address_of(bootstrap_servers, topic) if isinstance(topic, str) else None

    async def send(self, attempt: Attempt) -> Answer:
        topic = self._topic.of(attempt)
        if not _TOPIC.fullmatch(topic):
            return Terminal(brokers.REFUSED, "A topic has 1 to 249 letters, digits, dots, hyphens and underscores.")
        message = brokers.envelope(attempt, self._cloudevents, prefix="ce_")
        key = None if attempt.order_by is None else attempt.order_by.encode()
        headers = {**message.headers, "content-type": message.content_type}
        size = _size(message, headers, key)
        if size > self._bytes_max:
            return brokers.too_large(size, self._bytes_max)
        wire = await brokers.connected(self._connection)
        return await wire.produce(topic, message.body, key=key, headers=headers)

    async def aclose(self) -> None:
        await self._connection.aclose()


class Wire:
    """One producer, the thread that polls it, and the records that wait for their confirms.

    is_spent: a record of it was cut off. It is thrown away as soon as nothing else waits, lest librdkafka sends that
    record later; until then, and for at most `confirm_seconds`, it may.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._loop = asyncio.get_running_loop()
        self._is_down = self._was_cut_off = self._ends = False
        self._login_refused = False
        self._waiting = 0
        self._confirmed: deque[tuple[asyncio.Future[Answer], Answer]] = deque()
        self._producer = Producer({**options, "error_cb": self._on_error})
        self._poller = threading.Thread(target=self._poll, name="redrive kafka", daemon=True)
        self._poller.start()

    @property
    def is_spent(self) -> bool:
        return self._ends or (self._was_cut_off and not self._waiting)

    def is_open(self) -> bool:
        return not self._is_down and not self.is_spent

    async def reach(self, seconds: float) -> None:
        """Raises an answer where no broker can be reached."""
        self._login_refused = False
        try:
            await asyncio.to_thread(self._producer.list_topics, timeout=seconds)
        except KafkaException as error:
            self._is_down = True
            raise brokers.login_refused() if self._login_refused else brokers.not_connected(error) from error
        self._is_down = False

    async def close(self) -> None:
        """What is not confirmed is in doubt, or was never sent: `purge` tells which."""
        self._ends = True
        self._producer.purge()
        await asyncio.to_thread(self._poller.join)
        self._tell()

    async def produce(self, topic: str, body: bytes, *, key: bytes | None, headers: Mapping[str, str]) -> Answer:
        if self._ends:  # nothing would poll for its confirm
            return brokers.down("The producer was closed.")
        confirm: asyncio.Future[Answer] = self._loop.create_future()

        def confirmed(error: KafkaError | None, record: Message) -> None:
            self._confirm(confirm, _answer(error, record))

        pairs: Any = [(name, value.encode()) for name, value in headers.items()]
        self._waiting += 1
        try:
            self._producer.produce(topic, body, key=key, headers=pairs, on_delivery=confirmed)
            return await confirm
        except BufferError:
            return Retryable(brokers.BROKER_BUSY, "The producer's queue is full.")
        except KafkaException as error:
            return _answer(error.args[0], None)
        except asyncio.CancelledError:
            self._was_cut_off = True
            raise
        finally:
            self._waiting -= 1

    def _confirm(self, confirm: asyncio.Future[Answer], answer: Answer) -> None:
        """In the thread: one call wakes the loop for all that have come meanwhile."""
        self._confirmed.append((confirm, answer))
        if len(self._confirmed) == 1:
            with suppress(RuntimeError):  # the loop has ended, and with it the task that waited
                self._loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        while self._confirmed:
            confirm, answer = self._confirmed.popleft()
            if not confirm.done():
                confirm.set_result(answer)

    def _poll(self) -> None:
        while not self._ends:
            self._producer.poll(POLL_SECONDS)
        self._producer.poll(0)

    def _on_error(self, error: KafkaError) -> None:
        if error.code() in _LOGIN_REFUSED:
            self._login_refused = self._is_down = True
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._is_down = True
        if error.fatal():
            self._ends = True


def _answer(error: KafkaError | None, record: Message | None) -> Answer:
    if error is None:
        assert record is not None
        return Delivered(f"{record.topic()}:{record.partition()}:{record.offset()}")
    if error.code() in _NOT_STORED:
        kind, code = _NOT_STORED[error.code()]
        return kind(code, error.name())
    return brokers.confirm_lost()


def _size(message: Envelope, headers: Mapping[str, str], key: bytes | None) -> int:
    return len(message.body) + len(key or b"") + sum(len(f"{name}{value}".encode()) for name, value in headers.items())
