"""A broker in memory, for tests of consumers: `ScriptedSource`."""

import asyncio
import json
from collections import Counter, deque
from collections.abc import Sequence
from typing import Any

from redrive.ports.sources import Delivery


class ScriptedSource:
    """Delivers what was put in. Like a broker, it keeps a message until it is acknowledged: what is given back comes
    again, and `redeliver` delivers again all that is in hand. acknowledged, given_back: ids, in their order. received:
    deliveries of each id."""

    def __init__(self) -> None:
        self._waiting: deque[Delivery] = deque()
        self._in_hand: dict[str, Delivery] = {}
        self._arrived = asyncio.Event()
        self.acknowledged: list[str] = []
        self.given_back: list[str] = []
        self.received: Counter[str] = Counter()
        self.limits: list[int] = []
        self.is_closed = False

    def put(
        self, id: str, data: Any = None, *, kind: str = "test", source: str = "/test", subject: str | None = None
    ) -> None:
        """A CloudEvent in binary mode."""
        headers = {"ce-specversion": "1.0", "ce-id": id, "ce-source": source, "ce-type": kind}
        if subject is not None:
            headers["ce-subject"] = subject
        self.put_raw(id, json.dumps(data).encode(), headers=headers)

    def put_raw(
        self, id: str, body: bytes, *, headers: dict[str, str] | None = None, content_type: str = "application/json"
    ) -> None:
        """Any message."""
        self._waiting.append(Delivery(id=id, body=body, headers=headers or {}, content_type=content_type))
        self._arrived.set()

    def redeliver(self) -> None:
        """As after a lost connection: what was delivered and not acknowledged comes first."""
        self._waiting.extendleft(reversed(self._in_hand.values()))
        self._in_hand.clear()
        self._arrived.set()

    @property
    def waiting(self) -> int:
        """Messages that the next `receive` can deliver."""
        return len(self._waiting)

    async def receive(self, limit: int, /) -> Sequence[Delivery]:
        self.limits.append(limit)
        if not self._waiting:
            self._arrived.clear()
            try:
                await asyncio.wait_for(self._arrived.wait(), 1.0)
            except TimeoutError:
                return []
        taken = [self._waiting.popleft() for _ in range(min(limit, len(self._waiting)))]
        self._in_hand |= {delivery.id: delivery for delivery in taken}
        self.received.update(delivery.id for delivery in taken)
        return taken

    async def ack(self, delivery: Delivery, /) -> None:
        self._in_hand.pop(delivery.id, None)
        self.acknowledged.append(delivery.id)

    async def give_back(self, delivery: Delivery, /) -> None:
        self.given_back.append(delivery.id)
        if self._in_hand.pop(delivery.id, None) is not None:
            self._waiting.appendleft(delivery)
            self._arrived.set()

    async def aclose(self) -> None:
        self.is_closed = True
