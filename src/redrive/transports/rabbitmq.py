"""Messages published to RabbitMQ, persistent, mandatory and confirmed.

    app.transport("events", RabbitTransport("amqp://rabbit.internal/", exchange="orders", routing_key="{kind}"))

All sends share one channel in confirm mode with many confirms outstanding. RabbitMQ does not deduplicate: a message
that is sent again after a lost confirm is there twice, with the same `message_id` and `idempotency-key`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlsplit

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractExchange
from aiormq.exceptions import (
    AMQPError,
    AuthenticationError,
    ChannelAccessRefused,
    ChannelNotFoundEntity,
    ChannelPreconditionFailed,
    ConnectionNotAllowed,
    DeliveryError,
    InvalidFrameError,
    ProbableAuthenticationError,
    PublishError,
)

from redrive.answers import Answer, Delivered, Retryable, Terminal, Unknown
from redrive.errors import InvalidValue
from redrive.message import Attempt
from redrive.policy import address_of
from redrive.transports import brokers
from redrive.transports.brokers import CONFIRM_SECONDS, CONNECT_SECONDS, Connection, Name, Naming
from redrive.transports.cloudevents import CloudEvents

__all__ = ["CloudEvents", "RabbitTransport", "check_url", "connection", "opened"]

T = TypeVar("T")

NACKED: Final = "NACKED"  # the broker took no responsibility; other queues of the exchange may have the message
MESSAGE_BYTES_MAX: Final = 16 * 1024 * 1024  # `max_message_size` of RabbitMQ 4 that says nothing else
ROUTING_KEY_BYTES_MAX: Final = 255
CAREFUL_MESSAGES: Final = 50  # sent one by one after the broker has closed the channel because of one of many
_WORD_SAFE: Final = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in "*#%")


def connection(url: str, *, exchange: str = "", connect_seconds: float = CONNECT_SECONDS) -> Connection[Wire]:
    """A connection with one channel. exchange: one that must be there."""

    async def open_wire() -> Wire:
        missing = f"There is no exchange {exchange!r}."
        return await opened(url, lambda made: _wire(made, exchange), missing=missing, connect_seconds=connect_seconds)

    return Connection(open_wire, is_open=Wire.is_open, close=Wire.close, connect_seconds=connect_seconds)


async def opened(
    url: str, use: Callable[[AbstractConnection], Awaitable[T]], *, missing: str, connect_seconds: float
) -> T:
    """What `use` makes of a new connection, which is not reopened behind our back. Raises an answer. missing: its text
    where an exchange or a queue is not there. For publishing and consuming alike."""
    try:
        made = await aio_pika.connect(url, timeout=connect_seconds)
        try:
            return await use(made)
        except BaseException:
            await made.close()
            raise
    except ChannelNotFoundEntity as error:
        raise Retryable(brokers.STREAM_MISSING, missing) from error
    except ChannelAccessRefused as error:
        raise brokers.login_refused("The broker does not let this login use the exchange or queue.") from error
    except (AuthenticationError, ProbableAuthenticationError, ConnectionNotAllowed) as error:
        raise brokers.login_refused() from error
    except InvalidFrameError as error:  # what the library makes of the broker's refusal to open the virtual host
        raise brokers.login_refused("The broker refuses the virtual host.") from error
    except (AMQPError, RuntimeError) as error:
        raise brokers.not_connected(error) from error


def check_url(url: str) -> None:
    if urlsplit(url).scheme not in ("amqp", "amqps"):
        raise InvalidValue("url must begin with amqp:// or amqps://.")


async def _wire(opened: AbstractConnection, exchange: str) -> Wire:
    channel = await opened.channel(publisher_confirms=True, on_return_raises=True)
    found = await channel.get_exchange(exchange) if exchange else channel.default_exchange
    return Wire(opened, channel, found)


class RabbitTransport:
    """Publishes to an exchange.

    url: `amqp://` or `amqps://`, with the virtual host as its path. exchange: "" is the default one, whose routing key
    is the name of a queue. routing_key: a function of the attempt, or a text with `{order_by}`, `{kind}`, `{tenant}`,
    `{destination}` in it, each one word of the key. message_bytes_max: what is larger is refused, at most the broker's
    `max_message_size`. confirm_seconds: how long a confirm is waited for; after that it is Unknown.
    """

    def __init__(
        self,
        url: str,
        *,
        routing_key: Name,
        exchange: str = "",
        message_bytes_max: int = MESSAGE_BYTES_MAX,
        cloudevents: CloudEvents | None = None,
        connect_seconds: float = CONNECT_SECONDS,
        confirm_seconds: float = CONFIRM_SECONDS,
    ) -> None:
        check_url(url)
        brokers.require_confirm_seconds(confirm_seconds)
        self._routing_key = Naming("routing_key", routing_key, encode=_word)
        self._bytes_max, self._cloudevents, self._confirm_seconds = message_bytes_max, cloudevents, confirm_seconds
        self._connection = connection(url, exchange=exchange, connect_seconds=connect_seconds)
        self._careful = 0  # messages that are sent one by one
        self._turn: asyncio.Lock = asyncio.Lock()
        self.address = address_of(url, exchange, routing_key) if isinstance(routing_key, str) else None

    async def send(self, attempt: Attempt) -> Answer:
        key = self._routing_key.of(attempt)
        if len(key.encode()) > ROUTING_KEY_BYTES_MAX:
            size = len(key.encode())
            return Terminal(
                brokers.REFUSED, f"The routing key has {size} bytes; at most {ROUTING_KEY_BYTES_MAX} can be."
            )
        message = self._message(attempt)
        if len(message.body) > self._bytes_max:
            return brokers.too_large(len(message.body), self._bytes_max)
        wire = await brokers.connected(self._connection)
        if not self._careful:
            return await self._publish(wire, message, key)
        async with self._turn:
            self._careful = max(self._careful - 1, 0)
            return await self._publish(await brokers.connected(self._connection), message, key)

    async def aclose(self) -> None:
        await self._connection.aclose()
        self._turn = asyncio.Lock()

    async def _publish(self, wire: Wire, message: aio_pika.Message, key: str) -> Answer:
        answer = await wire.publish(message, key, seconds=self._confirm_seconds)
        if wire.refused_one_of_many:
            self._careful = CAREFUL_MESSAGES
        return answer

    def _message(self, attempt: Attempt) -> aio_pika.Message:
        envelope = brokers.envelope(attempt, self._cloudevents, prefix="cloudEvents_")
        headers: Any = envelope.headers
        return aio_pika.Message(
            envelope.body,
            headers=headers,
            content_type=envelope.content_type,
            delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
            message_id=attempt.token,
            timestamp=attempt.created_at,
            type=attempt.kind or None,
        )


class Wire:
    """One channel in confirm mode. refused_one_of_many: the broker closed it because of one message, and did not say
    which: each of them is in doubt."""

    def __init__(self, connection: AbstractConnection, channel: AbstractChannel, exchange: AbstractExchange) -> None:
        self._connection, self._channel, self._exchange = connection, channel, exchange
        self._waiting = self._begun = 0
        self.refused_one_of_many = False

    def is_open(self) -> bool:
        return not (self._connection.is_closed or self._channel.is_closed)

    async def close(self) -> None:
        await self._connection.close()

    async def publish(self, message: aio_pika.Message, key: str, *, seconds: float) -> Answer:
        if not self.is_open():
            return brokers.down("The connection was lost.")
        was_alone = not self._waiting
        self._waiting += 1
        self._begun = number = self._begun + 1
        try:
            await self._exchange.publish(message, key, mandatory=True, timeout=seconds)
            return Delivered(message.message_id)
        except TimeoutError:
            return brokers.confirm_lost(seconds)
        except PublishError:
            return Terminal(brokers.UNROUTABLE, f"No queue is bound for the routing key {key!r}.")
        except DeliveryError:
            return Unknown(NACKED, "The broker could not take the message; a queue that is full may say so.")
        except (ChannelAccessRefused, ChannelNotFoundEntity, ChannelPreconditionFailed) as error:
            return self._closed(error, is_alone=was_alone and self._begun == number)
        except (AMQPError, OSError, RuntimeError):
            return brokers.confirm_lost()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return brokers.confirm_lost()  # the library cancels what waits when it closes
        finally:
            self._waiting -= 1

    def _closed(self, error: AMQPError, *, is_alone: bool) -> Answer:
        if not is_alone:
            self.refused_one_of_many = True
            return brokers.confirm_lost()
        if isinstance(error, ChannelNotFoundEntity):
            return Retryable(brokers.STREAM_MISSING, "The exchange is not there any more.")
        if isinstance(error, ChannelAccessRefused):
            return Terminal(brokers.NOT_AUTHORISED, "The user may not publish to this exchange.")
        return Terminal(brokers.TOO_LARGE, "The message has more bytes than `max_message_size` of the broker.")


def _word(value: str) -> str:
    """One word of a routing key: no dot, no wildcard, no space."""
    return quote(value, safe=_WORD_SAFE).replace(".", "%2E")
