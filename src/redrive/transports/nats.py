"""Messages published to NATS JetStream, each confirmed by its stream.

    app.transport("events", NatsTransport("nats://nats.internal:4222", subject="orders.{order_by}"))

All sends share one connection and wait for their confirms side by side, so that one write to the socket carries many
messages. `Nats-Msg-Id` is the token of the message (its id, until it is edited): a stream drops a second copy that
comes within its `duplicate_window` (2 minutes unless the stream says otherwise); a copy that comes later is stored
again, and consumers recognise it by `idempotency-key`.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from itertools import count
from math import ceil
from typing import Any, Final
from urllib.parse import quote

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import AuthorizationError, ConnectionClosedError, Error, NoServersError
from nats.js.api import StorageType

from redrive.answers import Answer, Delivered, Retryable, Terminal
from redrive.message import Attempt
from redrive.policy import address_of
from redrive.ports.broker_risks import BrokerRisk
from redrive.transports import brokers
from redrive.transports.broker_risks import UNNAMED_STREAM, nats_risks
from redrive.transports.brokers import CONFIRM_SECONDS, CONNECT_SECONDS, Connection, Envelope, Name, Naming
from redrive.transports.cloudevents import CloudEvents

__all__ = ["CloudEvents", "NatsTransport", "connection"]

PING_SECONDS: Final = 10
_PRINTABLE: Final = "".join(chr(code) for code in range(0x21, 0x7F))
_TOKEN_SAFE: Final = "".join(set(_PRINTABLE) - set(".*>%"))
_HEADER_SAFE: Final = "".join(set(_PRINTABLE) - set(':"(),/;<=>?@[\\]{}%'))
_DENIED: Final = re.compile(r'permissions violation for publish to "([^"]*)"', re.IGNORECASE)
_HEADER_FRAME: Final = len(b"NATS/1.0\r\n\r\n")
# The protocol's own words, for which the client library has no type while it connects.
_LOGIN_REFUSED: Final = frozenset({"Authorization Violation", "Authentication Timeout", "User Authentication Expired"})
# JetStream's codes of errors: the subject has another stream than expected; larger than the stream takes.
_OTHER_STREAM, _EXCEEDS_MAXIMUM = 10060, 10054


def connection(
    url: str | Sequence[str], *, credentials: str | None = None, connect_seconds: float = CONNECT_SECONDS
) -> Connection[Wire]:
    """A connection that is never reopened behind our back: what was published on a lost one is in doubt, and must not
    be sent again by the client library."""

    async def open_wire() -> Wire:
        wire = Wire()
        try:
            await wire.client.connect(
                servers=url if isinstance(url, str) else list(url),
                user_credentials=credentials,
                allow_reconnect=False,
                max_reconnect_attempts=1,  # at the start each server is tried twice; 0 would try for ever
                reconnect_time_wait=0,
                connect_timeout=ceil(connect_seconds),
                ping_interval=PING_SECONDS,
                error_cb=wire.on_error,
                closed_cb=wire.on_closed,
            )
            await wire.listen()
        except Error as error:
            raise _not_connected(wire, error) from error
        finally:
            if not wire.is_open():
                await wire.close()
        return wire

    return Connection(open_wire, is_open=Wire.is_open, close=Wire.close, connect_seconds=connect_seconds)


class NatsTransport:
    """Publishes to a subject that a JetStream stream takes.

    url: `nats://`, `tls://` or `ws://`, one or several of a cluster. subject: a function of the attempt, or a text with
    `{order_by}`, `{kind}`, `{tenant}`, `{destination}` in it, each one token of the subject. stream: refuse what
    another stream would take; None = any. credentials: path of a `.creds` file. confirm_seconds: how long a confirm is
    waited for; after that it is Unknown.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        *,
        subject: Name,
        stream: str | None = None,
        cloudevents: CloudEvents | None = None,
        credentials: str | None = None,
        connect_seconds: float = CONNECT_SECONDS,
        confirm_seconds: float = CONFIRM_SECONDS,
    ) -> None:
        brokers.require_confirm_seconds(confirm_seconds)
        self._subject = Naming("subject", subject, encode=_token)
        self._stream, self._cloudevents, self._confirm_seconds = stream, cloudevents, confirm_seconds
        self._connection = connection(url, credentials=credentials, connect_seconds=connect_seconds)
        self.address = address_of(str(url), subject) if isinstance(subject, str) else None

    async def send(self, attempt: Attempt) -> Answer:
        subject = self._subject.of(attempt)
        message = brokers.envelope(attempt, self._cloudevents, prefix="ce-", is_encoded=True)
        headers = self._headers(attempt, message)
        wire = await brokers.connected(self._connection)
        size = _HEADER_FRAME + sum(len(f"{name}: {value}\r\n".encode()) for name, value in headers.items())
        if size + len(message.body) > wire.client.max_payload:
            return brokers.too_large(size + len(message.body), wire.client.max_payload)
        return await wire.publish(subject, message.body, headers, seconds=self._confirm_seconds)

    async def aclose(self) -> None:
        await self._connection.aclose()

    async def broker_risks(self, *, inbox_seconds: float | None) -> Sequence[BrokerRisk]:  # noqa: ARG002
        """Of the stream that it names; of what a consumer does with it nothing is known here."""
        if self._stream is None:
            return [UNNAMED_STREAM]
        wire = await brokers.connected(self._connection)
        return await stream_risks(wire.client, self._stream, inbox_seconds=None)

    def _headers(self, attempt: Attempt, message: Envelope) -> dict[str, str]:
        headers = {quote(name, safe=_HEADER_SAFE): value.strip() for name, value in message.headers.items()}
        headers |= {"content-type": message.content_type, "Nats-Msg-Id": attempt.token}
        return headers if self._stream is None else {**headers, "Nats-Expected-Stream": self._stream}


async def stream_risks(client: Client, stream: str, *, inbox_seconds: float | None) -> Sequence[BrokerRisk]:
    config = (await client.jetstream().stream_info(stream)).config
    return list(
        nats_risks(
            stream,
            in_files=config.storage in (None, StorageType.FILE),
            replicas=config.num_replicas or 1,
            age_seconds=config.max_age or None,
            inbox_seconds=inbox_seconds,
        )
    )


class Wire:
    """One connection to NATS, and the publishes on it that wait for their confirms."""

    def __init__(self) -> None:
        self.client = Client()
        self._waiting: dict[str, tuple[str, asyncio.Future[Answer]]] = {}  # by the last token of the reply's subject
        self._numbers = count()
        self._inbox = ""
        self.last_error: BaseException | None = None

    async def listen(self) -> None:
        self._inbox = self.client.new_inbox()
        await self.client.subscribe(f"{self._inbox}.*", cb=self._on_confirm)

    def is_open(self) -> bool:
        return bool(self.client.is_connected)

    async def close(self) -> None:
        await self.client.close()

    async def publish(self, subject: str, body: bytes, headers: dict[str, str], *, seconds: float) -> Answer:
        number = str(next(self._numbers))
        confirm: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[number] = (subject, confirm)
        try:
            await self.client.publish(subject, body, reply=f"{self._inbox}.{number}", headers=headers)
            async with asyncio.timeout(seconds):
                return await confirm
        except TimeoutError:
            return brokers.confirm_lost(seconds)
        except ConnectionClosedError as error:  # by `publish` itself: nothing was written
            return brokers.not_connected(error)
        except Error as error:  # likewise: a subject that cannot be
            return Terminal(brokers.REFUSED, str(error))
        finally:
            del self._waiting[number]

    async def on_closed(self) -> None:
        for _, confirm in self._waiting.values():
            _settle(confirm, brokers.confirm_lost())

    async def on_error(self, error: Exception) -> None:
        """A refused subject comes without the number of its publish: all that wait with that subject are meant. The
        client has folded its case, so where two subjects differ by that only, neither is judged."""
        self.last_error = error
        denied = _DENIED.search(str(error))
        if denied is None:
            return
        meant = [
            (subject, confirm) for subject, confirm in self._waiting.values() if subject.lower() == denied[1].lower()
        ]
        if len({subject for subject, _ in meant}) == 1:
            for subject, confirm in meant:
                _settle(confirm, Terminal(brokers.NOT_AUTHORISED, f"The broker refuses to publish to {subject}."))

    async def _on_confirm(self, message: Msg) -> None:
        _, confirm = self._waiting.get(message.subject.rpartition(".")[2], (None, None))
        if confirm is not None:
            _settle(confirm, _answer(message))


def _settle(confirm: asyncio.Future[Answer], answer: Answer) -> None:
    if not confirm.done():
        confirm.set_result(answer)


def _answer(message: Msg) -> Answer:
    """What the stream says. A reply that cannot be read is no confirm."""
    if (message.headers or {}).get("Status") == "503":
        return Retryable(brokers.STREAM_MISSING, "No stream takes this subject, or JetStream is not ready.")
    try:
        said = json.loads(message.data)
        if "error" in said:
            return _refused(said["error"])
        return Delivered(f"{said['stream']}:{said['seq']}")
    except (ValueError, KeyError, TypeError):
        return brokers.confirm_lost()


def _refused(error: dict[str, Any]) -> Answer:
    """The stream's own word: nothing was stored."""
    text = f"{error.get('err_code')}: {error.get('description')}"
    if error.get("err_code") == _EXCEEDS_MAXIMUM:
        return Terminal(brokers.TOO_LARGE, text)
    if error.get("err_code") == _OTHER_STREAM or error.get("code") == 404:
        return Retryable(brokers.STREAM_MISSING, text)
    if error.get("code") in (401, 403):
        return Terminal(brokers.NOT_AUTHORISED, text)
    return Terminal(brokers.REFUSED, text) if error.get("code") == 400 else Retryable(brokers.BROKER_BUSY, text)


def _not_connected(wire: Wire, error: Error) -> Answer:
    """`NoServersError` says that all were tried; what the last one said is known from the callback."""
    last = wire.last_error if isinstance(error, NoServersError) and wire.last_error is not None else error
    if isinstance(last, AuthorizationError) or str(last).removeprefix("nats: ").strip("'") in _LOGIN_REFUSED:
        return brokers.login_refused()
    return brokers.not_connected(last)


def _token(value: str) -> str:
    """One token of a subject: no dot, no wildcard, no space."""
    return quote(value, safe=_TOKEN_SAFE).replace(".", "%2E")  # which `quote` leaves alone
