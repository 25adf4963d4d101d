"""NATS JetStream as a source: a durable pull consumer, acknowledged after the commit. Needs the extra `nats`.

    source=lambda: NatsSource("nats://nats.internal:4222", stream="ORDERS", durable="billing")

What a dead worker had comes again after `ack_wait_seconds`. Order by key needs one worker for each durable name. After
a crash or a lost connection the server delivers new messages before those that come again: they are held back so long.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig

from redrive.errors import InvalidValue
from redrive.ports.broker_risks import BrokerRisk
from redrive.ports.sources import Delivery
from redrive.transports.nats import stream_risks

__all__ = ["NatsSource"]

CONNECT_SECONDS: Final = 5
WAIT_SECONDS: Final = 1.0
ACK_SECONDS: Final = 5.0
ACK_WAIT_SECONDS_DEFAULT: Final = 60.0
MAX_ACK_PENDING_DEFAULT: Final = 1000


class NatsSource:
    """url: one or several servers of a cluster. stream: it must exist, and store in files. durable: the name under
    which the server remembers what was acknowledged. subject: a filter such as "orders.>"; "" = all of the stream.

    ack_wait_seconds: after it the server delivers again what was not acknowledged; longer than a message waits in the
    worker and its handler takes. max_ack_pending: messages in hand over all workers. credentials: path of a `.creds`
    file.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        *,
        stream: str,
        durable: str,
        subject: str = "",
        ack_wait_seconds: float = ACK_WAIT_SECONDS_DEFAULT,
        max_ack_pending: int = MAX_ACK_PENDING_DEFAULT,
        credentials: str | None = None,
    ) -> None:
        if not stream or not durable:
            raise InvalidValue("A NatsSource needs the name of a stream and a durable name.")
        self._url, self._credentials = url if isinstance(url, str) else list(url), credentials
        self._stream, self._durable, self._subject = stream, durable, subject
        self._ack_wait_seconds, self._max_ack_pending = ack_wait_seconds, max_ack_pending
        self._client: Client | None = None
        self._pull: JetStreamContext.PullSubscription | None = None
        self._line = _Line()

    async def receive(self, limit: int, /) -> Sequence[Delivery]:
        try:
            if not self._line.ready:
                messages = await self._fetched(limit)  # it may begin a new line
                self._line.add(messages, asyncio.get_running_loop().time())
        except Exception:
            await self._disconnect()  # the next call connects again; what was not acknowledged comes again
            raise
        return [self._delivery(message) for message in self._line.take(limit)]

    async def ack(self, delivery: Delivery, /) -> None:
        """Waits for the server's answer: a lost acknowledgement is a redelivery, which the inbox has seen."""
        await delivery.handle.ack_sync(timeout=ACK_SECONDS)

    async def give_back(self, delivery: Delivery, /) -> None:
        await delivery.handle.nak()

    async def aclose(self) -> None:
        with suppress(Exception):  # then it comes again after ack_wait_seconds
            for message in self._line.all():
                await message.nak()
            if self._client is not None:
                await self._client.flush(timeout=2)
        await self._disconnect()

    async def broker_risks(self, *, inbox_seconds: float | None) -> Sequence[BrokerRisk]:
        client = self._client = await self._connected()
        return await stream_risks(client, self._stream, inbox_seconds=inbox_seconds)

    async def _fetched(self, limit: int) -> list[Msg]:
        pull = self._pull or await self._subscribed()
        try:
            return await pull.fetch(limit, timeout=WAIT_SECONDS)
        except TimeoutError:  # the client's own class for it, or, under load, the plain one
            return []

    async def _connected(self) -> Client:
        client = Client()
        await client.connect(
            servers=self._url,
            user_credentials=self._credentials,
            allow_reconnect=False,
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            connect_timeout=CONNECT_SECONDS,
            error_cb=_ignore,
        )
        return client

    async def _subscribed(self) -> JetStreamContext.PullSubscription:
        client = self._client = await self._connected()
        pull = await client.jetstream().pull_subscribe(
            self._subject, durable=self._durable, stream=self._stream, config=self._config()
        )
        info = await pull.consumer_info()
        self._line = _Line(
            earlier=info.num_ack_pending or 0,
            until=info.delivered.stream_seq if info.delivered else 0,
            deadline=asyncio.get_running_loop().time() + 2 * self._ack_wait_seconds,
        )
        self._pull = pull
        return pull

    def _config(self) -> ConsumerConfig:
        return ConsumerConfig(
            ack_policy=AckPolicy.EXPLICIT, ack_wait=self._ack_wait_seconds, max_ack_pending=self._max_ack_pending
        )

    async def _disconnect(self) -> None:
        client, self._client, self._pull, self._line = self._client, None, None, _Line()
        if client is not None:
            with suppress(Exception):
                await client.close()

    def _delivery(self, message: Msg) -> Delivery:
        headers = {str(name): str(value) for name, value in (message.headers or {}).items()}
        content_type = next((value for name, value in headers.items() if name.lower() == "content-type"), "")
        return Delivery(
            body=message.data,
            headers=headers,
            content_type=content_type,
            id=f"{self._stream}:{message.metadata.sequence.stream}",
            order_by=message.subject,
            handle=message,
        )


class _Line:
    """Puts messages back into the order of the stream.

    earlier: so many messages up to the number `until` were delivered before we connected, and come again. Later ones
    wait for them, until the deadline: the stream may have let go of them.
    """

    def __init__(self, *, earlier: int = 0, until: int = 0, deadline: float = 0.0) -> None:
        self._earlier, self._until, self._deadline = earlier, until, deadline
        self._came: set[int] = set()
        self._held: dict[int, Msg] = {}
        self.ready: deque[Msg] = deque()

    def add(self, messages: Sequence[Msg], now: float) -> None:
        for message in messages:
            number = message.metadata.sequence.stream
            self._held[number] = message
            if number <= self._until:
                self._came.add(number)
        if len(self._came) >= self._earlier or now > self._deadline:
            self._earlier = 0
            self.ready.extend(self._held[number] for number in sorted(self._held))
            self._held.clear()

    def take(self, limit: int) -> list[Msg]:
        return [self.ready.popleft() for _ in range(min(limit, len(self.ready)))]

    def all(self) -> list[Msg]:
        return [*self.ready, *self._held.values()]


async def _ignore(error: Exception) -> None:
    """What went wrong is raised by the call that it concerns."""
