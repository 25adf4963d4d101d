"""The brokers behind one interface: what the tests of all of them need."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol
from uuid import uuid4

from redrive.answers import Answer
from redrive.kit.proof.brokers import Server
from redrive.kit.proof.brokers.proxy import Mode, Proxy
from redrive.message import Attempt
from redrive.ports import Transport
from redrive.testing import Condition
from redrive.transports.brokers import Connection

NOTICE_STEPS = 1000


class Broker(Server, Protocol):
    def transport(self, port: int, place: str, **options: Any) -> Transport:
        """One that publishes to a place of the broker, through a port."""
        ...

    def stored(self, place: str) -> list[str]:
        """The tokens of all messages in it, in their order."""
        ...

    def set_condition(self, place: str, condition: Condition) -> None:
        """WELL, BUSY or REFUSING; NotImplementedError where it cannot be."""
        ...


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
