"""What a Kafka source has of its partitions: which messages are ready, which are unfinished, what may be committed.

Used by two threads: the worker's, which takes and finishes messages, and the one that polls. No more is ready than the
worker wants. The position of a partition is its first unfinished message. What belongs to an assignment that has ended
is forgotten: its next worker gets it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

from confluent_kafka import Message, TopicPartition

from redrive.ports.sources import Delivery


class Assignment:
    """A partition while it is assigned to this worker. position: up to it, everything is finished; None = nothing came.
    asked: the position that was last committed, or is being committed."""

    def __init__(self, topic: str, number: int) -> None:
        self.topic, self.number = topic, number
        self.unfinished: set[int] = set()
        self.asked: int | None = None
        self._next: int | None = None

    @property
    def position(self) -> int | None:
        return min(self.unfinished, default=self._next)

    def add(self, offset: int) -> None:
        """Not the highest one: a topic that was made anew begins with 0."""
        self.unfinished.add(offset)
        self._next = offset + 1


class Place(NamedTuple):
    """The handle of a delivery."""

    in_hand: InHand
    assignment: Assignment
    offset: int


class InHand:
    """The messages received from the partitions that are assigned, and not finished.

    ready: those that the worker has not taken yet. Never more than it wants, but for what it gave back, and for the one
    message that a poll brings when the worker has ceased to wait meanwhile.
    """

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._assigned: dict[tuple[str, int], Assignment] = {}
        self._ready: deque[Delivery] = deque()
        self._wanted = 0
        self._is_closed = False

    @property
    def ready(self) -> int:
        return len(self._ready)

    def want(self, count: int) -> None:
        """So many shall be ready."""
        with self._lock:
            self._wanted = count
            self._lock.notify()

    def wait_for_room(self, seconds: float = 0.0) -> bool:
        """Whether the worker wants more than is ready; waits so long until it does, or until `close`."""
        with self._lock:
            self._lock.wait_for(lambda: self._is_closed or self._has_room, seconds)
            return self._has_room

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            self._lock.notify()

    @property
    def assigned(self) -> list[tuple[str, int]]:
        with self._lock:
            return list(self._assigned)

    def assign(self, names: Iterable[tuple[str, int]]) -> None:
        with self._lock:
            self._assigned |= {name: Assignment(*name) for name in names}

    def revoke(self, names: Iterable[tuple[str, int]]) -> None:
        """What is unfinished in them is nothing to us any more, ready or with the worker."""
        with self._lock:
            for name in names:
                self._assigned.pop(name, None)
            self._ready = deque(delivery for delivery in self._ready if self._is_ours(delivery))

    def add(self, record: Message) -> None:
        topic, number, offset = record.topic(), record.partition(), record.offset()
        assert topic is not None
        assert number is not None
        assert offset is not None
        with self._lock:
            assignment = self._assigned[topic, number]
            place = Place(self, assignment, offset)
            assignment.add(offset)
            self._ready.append(_delivery(record, place))

    def take(self, limit: int) -> list[Delivery]:
        """What is ready. The worker wants no more until it says so again."""
        with self._lock:
            self._wanted = 0
            return [self._ready.popleft() for _ in range(min(limit, len(self._ready)))]

    def finish(self, delivery: Delivery) -> None:
        with self._lock:
            delivery.handle.assignment.unfinished.discard(delivery.handle.offset)

    def give_back(self, delivery: Delivery) -> None:
        """Into its place: only the order within a partition counts."""
        with self._lock:
            if self._is_ours(delivery):
                self._ready = deque(sorted([delivery, *self._ready], key=lambda one: int(one.handle.offset)))

    def to_commit(self, names: Iterable[tuple[str, int]] | None = None) -> list[TopicPartition]:
        """The positions that Kafka has not been told, of some partitions or of all."""
        with self._lock:
            wanted = set(self._assigned if names is None else names)
            found = [_asked(one) for name, one in self._assigned.items() if name in wanted]
            return [offset for offset in found if offset is not None]

    def not_committed(self, names: Iterable[tuple[str, int]]) -> None:
        """Kafka refused: ask again."""
        with self._lock:
            for name in names:
                if name in self._assigned:
                    self._assigned[name].asked = None

    @property
    def _has_room(self) -> bool:
        return len(self._ready) < self._wanted

    def _is_ours(self, delivery: Delivery) -> bool:
        one = delivery.handle.assignment
        return self._assigned.get((one.topic, one.number)) is one


def _asked(one: Assignment) -> TopicPartition | None:
    position = one.position
    if position is None or position == one.asked:
        return None
    one.asked = position
    return TopicPartition(one.topic, one.number, position)


def _delivery(record: Message, place: Place) -> Delivery:
    pairs: Any = record.headers() or ()
    headers = {name: _text(value) for name, value in pairs}
    return Delivery(
        body=record.value() or b"",
        headers=headers,
        content_type=next((value for name, value in headers.items() if name.lower() == "content-type"), ""),
        id=f"{record.topic()}:{record.partition()}:{record.offset()}",
        order_by=_text(record.key()) or None,
        handle=place,
    )


def _text(value: str | bytes | None) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value or ""
