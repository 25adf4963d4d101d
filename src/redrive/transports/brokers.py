"""What the broker transports share: their codes, what a message looks like, names made of it, one connection for all.

What fails before a message was handed to an open connection is Retryable or NotBegun; from there on everything but the
broker's own word is Unknown (G-13).
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Final, Generic, NamedTuple, TypeVar

from redrive import redact
from redrive.answers import UNCLASSIFIED, Answer, Retryable, Terminal, Unknown
from redrive.errors import InvalidValue
from redrive.message import Attempt
from redrive.ports import NotBegun
from redrive.transports.cloudevents import CloudEvents, Event

BROKER_DOWN: Final = "BROKER_DOWN"  # no connection: nothing was sent
BROKER_BUSY: Final = "BROKER_BUSY"  # the broker says that it has no room or no leader now; it has stored nothing
CONFIRM_LOST: Final = "CONFIRM_LOST"  # published, and the connection or the time ended before the confirm came
NOT_AUTHORISED: Final = "NOT_AUTHORISED"  # the broker refuses the login, or this subject, exchange, topic or key
STREAM_MISSING: Final = "STREAM_MISSING"  # no stream, exchange or topic takes the message; it can be created
UNROUTABLE: Final = "UNROUTABLE"  # the exchange exists, and no queue is bound for the routing key
TOO_LARGE: Final = "TOO_LARGE"
REFUSED: Final = "REFUSED"  # the broker will never take this message, for a reason in the text

CONNECT_SECONDS: Final = 5.0
CONFIRM_SECONDS: Final = 10.0

ID_HEADER: Final = "idempotency-key"  # the token: the same with every attempt
ORDER_HEADER: Final = "redrive-order-by"  # the ordering key, where the message has one
_OWN_HEADERS: Final = frozenset({ID_HEADER, ORDER_HEADER, "content-type"})
NO_VALUE: Final = "-"  # stands for an ordering key or a kind that the message does not have

C = TypeVar("C")
Name = str | Callable[[Attempt], str]


class Envelope(NamedTuple):
    """A message as it is published. headers: without the content type, for which each protocol has its own place."""

    headers: dict[str, str]
    content_type: str
    body: bytes


def envelope(attempt: Attempt, cloudevents: CloudEvents | None, *, prefix: str, is_encoded: bool = False) -> Envelope:
    """Headers of the message, then those of the CloudEvent, then the token and the ordering key."""
    event = Event({}, attempt.content_type, attempt.body)
    if cloudevents is not None:
        event = cloudevents.wrap(attempt, prefix=prefix, is_encoded=is_encoded)
    headers = {name: value for name, value in attempt.headers.items() if name.lower() not in _OWN_HEADERS}
    headers |= event.attributes
    headers[ID_HEADER] = attempt.token
    if attempt.order_by is not None:
        headers[ORDER_HEADER] = attempt.order_by
    return Envelope(headers, event.content_type, event.body)


class Naming:
    """Names a subject, routing key, topic or stream for a message: a function, or a text that may hold
    `{destination}`, `{kind}`, `{tenant}` and `{order_by}`; the values are encoded so that they remain one part."""

    FIELDS: Final = ("destination", "kind", "tenant", "order_by")

    def __init__(self, what: str, name: Name, *, encode: Callable[[str], str] = str) -> None:
        self._name, self._encode = name, encode
        if isinstance(name, str):
            self._check(what, name)

    def of(self, attempt: Attempt) -> str:
        """Nothing has gone out yet, so an exception of the function is Terminal."""
        if isinstance(self._name, str):
            return self._filled(self._name, attempt)
        try:
            return self._name(attempt)
        except Exception as error:
            raise Terminal(UNCLASSIFIED, redact.error_type(error), bug=True) from error

    def _filled(self, text: str, attempt: Attempt) -> str:
        values = {name: getattr(attempt, name) or NO_VALUE for name in self.FIELDS}
        return text.format_map({name: self._encode(value) for name, value in values.items()}) if "{" in text else text

    def _check(self, what: str, text: str) -> None:
        try:
            filled = text.format_map(dict.fromkeys(self.FIELDS, "x"))
        except (KeyError, IndexError, ValueError, AttributeError) as error:
            fields = ", ".join(f"{{{name}}}" for name in self.FIELDS)
            raise InvalidValue(f"{what} is {text!r}; it may hold {fields}, no other braces.") from error
        if not filled:
            raise InvalidValue(f"{what} is empty.")


class Connection(Generic[C]):
    """One connection for all that use it on an event loop: opened by the first, and opened again once it was lost.

    All who wait share one attempt to open it, and its failure. For publishing and consuming alike. revive: for a client
    that reconnects by itself; True = it can be used again as it is.
    """

    def __init__(
        self,
        open: Callable[[], Awaitable[C]],  # noqa: A002 - the verb
        *,
        is_open: Callable[[C], bool],
        close: Callable[[C], Awaitable[object]],
        revive: Callable[[C], Awaitable[bool]] | None = None,
        connect_seconds: float = CONNECT_SECONDS,
    ) -> None:
        self._open, self._is_open, self._close, self._revive = open, is_open, close, revive
        self._connect_seconds = connect_seconds
        self._loop: asyncio.AbstractEventLoop | None = None
        self._current: C | None = None
        self._opening: asyncio.Task[C] | None = None

    async def get(self) -> C:
        """Raises an answer where it cannot be opened."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._current, self._opening = loop, None, None
        if self._current is not None and self._is_open(self._current):
            return self._current
        if self._opening is None:
            self._opening = loop.create_task(self._reopened())
            self._opening.add_done_callback(self._opened)
        try:
            return await asyncio.shield(self._opening)
        except Answer as answer:
            raise replace(answer) from answer.__cause__

    async def aclose(self) -> None:
        """It can be used again."""
        opening, self._opening = self._opening, None
        current, self._current = self._current, None
        if self._loop is not asyncio.get_running_loop():
            return
        if opening is not None:
            opening.cancel()
            await asyncio.wait([opening])
        if current is not None:
            await self._closed(current)

    async def _reopened(self) -> C:
        try:
            async with asyncio.timeout(self._connect_seconds):
                lost = self._current
                if lost is not None and self._revive is not None and await self._revive(lost):
                    return lost
                self._current = None
                if lost is not None:
                    await self._closed(lost)
                return await self._open()
        except TimeoutError as error:
            raise down(f"No connection within {self._connect_seconds} s.") from error
        except OSError as error:
            raise not_connected(error) from error

    def _opened(self, opening: asyncio.Task[C]) -> None:
        if self._opening is opening:
            self._opening = None
        if not opening.cancelled() and opening.exception() is None:
            self._current = opening.result()

    async def _closed(self, connection: C) -> None:
        with suppress(Exception):  # it is lost, or to be
            async with asyncio.timeout(self._connect_seconds):
                await self._close(connection)


def require_confirm_seconds(seconds: float) -> None:
    if not seconds > 0:
        raise InvalidValue(f"confirm_seconds is {seconds}; it must be above 0.")


async def connected(connection: Connection[C]) -> C:
    """The connection, for a send: one that is cut off while it waits has not begun."""
    try:
        return await connection.get()
    except asyncio.CancelledError:
        raise NotBegun from None


def down(text: str) -> Retryable:
    """Nothing was sent."""
    return Retryable(BROKER_DOWN, text, destination_down=True)


def not_connected(error: BaseException) -> Retryable:
    """What kept us from connecting; the text names a type, and no address or password."""
    why = "the certificate was refused" if isinstance(error, ssl.SSLCertVerificationError) else redact.error_type(error)
    return down(f"Not connected: {why}.")


def login_refused(text: str = "The broker refuses the login.") -> Retryable:
    """Nothing was sent, and the credentials are put right without touching a message."""
    return Retryable(NOT_AUTHORISED, text, destination_down=True)


def too_large(size: int, bound: int) -> Terminal:
    return Terminal(TOO_LARGE, f"The message has {size:,} bytes; the broker takes at most {bound:,}.")


def confirm_lost(seconds: float | None = None) -> Unknown:
    """seconds: how long the confirm was waited for; None where the connection was lost."""
    why = "the connection was lost" if seconds is None else f"no confirm within {seconds} s"
    return Unknown(CONFIRM_LOST, f"Published; {why}.")
