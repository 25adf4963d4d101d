"""The brokers behind one interface: what the tests of all of them need."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar
from uuid import uuid4

from redrive.answers import Answer
from redrive.message import Attempt
from redrive.ports import Transport
from redrive.testing import Condition
from redrive.transports.brokers import Connection
from tests.transports.brokers.proxy import Mode, Proxy

T = TypeVar("T")
NOTICE_STEPS = 1000


class Broker(Protocol):
    """A running broker. port: where it listens."""

    name: str
    port: int

    def stop(self, number: int = signal.SIGTERM) -> None: ...

    def start(self) -> None: ...

    def transport(self, port: int, place: str, **options: Any) -> Transport:
        """One that publishes to a place of the broker (a stream, a queue, a topic), through a port."""
        ...

    def prepare(self, place: str) -> None:
        """Make the place."""
        ...

    def stored(self, place: str) -> list[str]:
        """The tokens of all messages in it, in their order."""
        ...

    def set_condition(self, place: str, condition: Condition) -> None:
        """WELL, BUSY or REFUSING; NotImplementedError where it cannot be."""
        ...

    def rewrite(self, said: bytes, port: int) -> bytes:
        """What the broker says to a client that came through a proxy."""
        ...


Starting = Callable[[Path], AbstractContextManager[Broker]]


def in_thread(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine in an event loop of its own, from a test that is in one."""
    found: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            found.append(asyncio.run(work()))
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return found[0]


async def answer_of(transport: Any, attempt: Attempt) -> Any:
    """What a transport says, whether it returns or raises it."""
    try:
        return await transport.send(attempt)
    except Answer as answer:
        return answer


class BrokerSubject:
    """A transport to a place of its own on the broker, through a proxy: what the conformance checks want."""

    def __init__(self, broker: Broker, proxy: Proxy) -> None:
        self.broker, self.proxy = broker, proxy
        self.place = f"p{uuid4().hex}"
        broker.prepare(self.place)
        self.transport: Any = broker.transport(proxy.port, self.place)
        self.reached = proxy.reached

    def effects(self) -> Sequence[str]:
        return self.broker.stored(self.place)

    async def become(self, condition: Condition) -> None:
        if condition in (Condition.WELL, Condition.BUSY, Condition.REFUSING):
            self.broker.set_condition(self.place, condition)
        if self.proxy.mode is not Mode.PASS or condition is Condition.AWAY:
            await self.proxy.refuse()
            await until_noticed(self.transport)
        if condition is not Condition.AWAY:
            await self.proxy.accept()
        self.proxy.mode = {Condition.LOSING_REPLIES: Mode.LOSE_REPLY, Condition.SILENT: Mode.SWALLOW}.get(
            condition, Mode.PASS
        )


async def until_noticed(transport: Any) -> None:
    """The transport knows that its connection is lost."""
    connection = getattr(transport, "_connection", None)
    if not isinstance(connection, Connection):
        return
    for _ in range(NOTICE_STEPS):
        if connection._current is None or not connection._is_open(connection._current):
            return
        await asyncio.sleep(0.005)
    raise AssertionError("the transport does not notice that its connection is lost")


@contextmanager
def started(broker: Any) -> Iterator[Any]:
    broker.start()
    try:
        yield broker
    finally:
        broker.stop(signal.SIGKILL)
