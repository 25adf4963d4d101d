"""Topics of Kafka as a source: a consumer group, whose offsets follow the commits in PostgreSQL. Needs the extra
`kafka`.

    source=lambda: KafkaSource("kafka.internal:9092", topics="orders", group="billing")

A thread polls, also while handlers are slow, so that the group does not exclude this worker. The offset of a partition
is committed up to its first unfinished message. A partition that is revoked takes its unfinished messages with it: its
next worker gets them, and the inbox knows those that were processed meanwhile.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from redrive.errors import InvalidValue
from redrive.ports.sources import Delivery

__all__ = ["KafkaSource"]

WAIT_SECONDS: Final = 1.0
POLL_SECONDS: Final = 0.1
COMMIT_SECONDS: Final = 0.25  # at most one commit of offsets in this time
CLOSE_SECONDS: Final = 10.0
REACH_SECONDS: Final = 1.0
_OWN_OPTIONS: Final = frozenset({"bootstrap.servers", "group.id", "enable.auto.commit", "enable.auto.offset.store"})
_CALLBACKS: Final = frozenset({"error_cb", "on_commit"})
# A commit that met a rebalance: its partitions are being revoked.
_TOO_LATE: Final = frozenset(
    {KafkaError.REBALANCE_IN_PROGRESS, KafkaError.ILLEGAL_GENERATION, KafkaError.UNKNOWN_MEMBER_ID}
)
_SKIPPING: Final = frozenset({"latest", "largest", "end"})
_DEFAULTS: Final[Mapping[str, Any]] = {
    "auto.offset.reset": "earliest",
    "isolation.level": "read_committed",
    # librdkafka's own buffer, which a pause throws away: 100,000 messages and 64 MiB unless we say so
    "queued.min.messages": 1000,
    "queued.max.messages.kbytes": 16_384,
}


class KafkaSource:
    """bootstrap_servers: `host:port`, several with commas between them. topics: one or several; `^` begins a pattern.
    group: the name under which Kafka remembers the offsets.

    config: further options of librdkafka, such as `security.protocol`, `sasl.password`, `session.timeout.ms`, or
    `group.instance.id` for a worker that shall get its partitions again at once after a restart.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        topics: str | Sequence[str],
        group: str,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self._topics = [topics] if isinstance(topics, str) else list(topics)
        if not group or not self._topics or not all(self._topics):
            raise InvalidValue("A KafkaSource needs a group and the names of its topics; one of them is empty.")
        self._options = {
            **_DEFAULTS,
            **_checked(config or {}),
            "bootstrap.servers": bootstrap_servers,
            "group.id": group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
        }
        self._poller: Poller | None = None

    async def receive(self, limit: int, /) -> Sequence[Delivery]:
        if self._poller is None or self._poller.has_ended:
            self._poller = Poller(self._options, self._topics)
        return await self._poller.receive(limit)

    async def ack(self, delivery: Delivery, /) -> None:
        """Its offset is committed soon, as soon as none before it is unfinished."""
        delivery.handle.in_hand.finish(delivery)

    async def give_back(self, delivery: Delivery, /) -> None:
        """It comes again, here or to the next worker that has its partition."""
        delivery.handle.in_hand.give_back(delivery)

    async def aclose(self) -> None:
        poller, self._poller = self._poller, None
        if poller is not None:
            await poller.stop()


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
    """The messages received from the partitions that are assigned, and not finished. Used by two threads.

    ready: those that the worker has not taken yet.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._assigned: dict[tuple[str, int], Assignment] = {}
        self._ready: deque[Delivery] = deque()

    @property
    def ready(self) -> int:
        return len(self._ready)

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
        with self._lock:
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

    def _is_ours(self, delivery: Delivery) -> bool:
        one = delivery.handle.assignment
        return self._assigned.get((one.topic, one.number)) is one


class Poller:
    """A consumer of librdkafka and the thread that has it. It ends when it is stopped, or when the consumer is broken
    for good."""

    def __init__(self, options: Mapping[str, Any], topics: list[str]) -> None:
        self._options, self._topics, self._in_hand = options, topics, InHand()
        self._loop = asyncio.get_running_loop()
        self._told = asyncio.Event()
        self._demand = threading.Event()
        self._wanted = 0
        self._error: Exception | None = None
        self._ends = self._is_committing = False
        self._is_down = True  # until a broker has answered
        self._commit_at = 0.0
        self._paused: set[tuple[str, int]] = set()
        self._thread = threading.Thread(target=self._run, name="redrive kafka source", daemon=True)
        self._thread.start()

    @property
    def has_ended(self) -> bool:
        return not self._thread.is_alive() and self._error is None

    async def receive(self, limit: int) -> list[Delivery]:
        """Waits about a second for the first message. Raises what has gone wrong meanwhile."""
        self._told.clear()
        self._wanted = limit
        self._demand.set()
        try:
            if not self._in_hand.ready and self._error is None and self._thread.is_alive():
                await asyncio.wait_for(self._told.wait(), WAIT_SECONDS)
        except TimeoutError:
            pass
        finally:
            self._demand.clear()
        error, self._error = self._error, None
        if error is not None:
            raise error
        return self._in_hand.take(limit)

    async def stop(self) -> None:
        self._ends = True
        self._demand.set()
        await asyncio.to_thread(self._thread.join, CLOSE_SECONDS)

    def _run(self) -> None:
        try:
            consumer = Consumer({**self._options, "error_cb": self._on_error, "on_commit": self._on_commit})
            try:
                consumer.subscribe(
                    self._topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
                )
                while not self._ends:
                    self._turn(consumer)
            finally:
                consumer.close()  # it revokes first, and then leaves the group
        except Exception as error:
            self._fail(error)
        finally:
            self._in_hand.revoke(self._in_hand.assigned)
            self._tell()

    def _turn(self, consumer: Consumer) -> None:
        """While the worker has no room the partitions are paused, and polling goes on."""
        if self._demand.wait(WAIT_SECONDS):
            self._resume(consumer)
            if self._is_down:
                self._reach(consumer)
            self._fetch(consumer)
        else:
            self._pause(consumer)
            self._take(consumer.poll(0))
        self._commit(consumer)

    def _fetch(self, consumer: Consumer) -> None:
        record = consumer.poll(POLL_SECONDS)
        while record is not None:
            self._take(record)
            record = consumer.poll(0) if self._in_hand.ready < self._wanted else None
        if self._in_hand.ready:
            self._tell()

    def _take(self, record: Message | None) -> None:
        if record is None:
            return
        error = record.error()
        if error is None:
            self._in_hand.add(record)
        elif error.fatal():
            raise KafkaException(error)
        elif error.code() != KafkaError._PARTITION_EOF:
            self._fail(KafkaException(error))

    def _pause(self, consumer: Consumer) -> None:
        running = set(self._in_hand.assigned) - self._paused
        if running:
            consumer.pause([TopicPartition(*name) for name in running])
            self._paused |= running

    def _resume(self, consumer: Consumer) -> None:
        if self._paused:
            consumer.resume([TopicPartition(*name) for name in self._paused])
            self._paused.clear()

    def _reach(self, consumer: Consumer) -> None:
        """librdkafka connects by itself, and does not say when it has."""
        try:
            consumer.list_topics(timeout=REACH_SECONDS)
            self._is_down = False
        except KafkaException as error:
            self._fail(error)

    def _commit(self, consumer: Consumer) -> None:
        """One at a time, lest an older one comes after a newer one."""
        now = self._loop.time()
        if self._is_committing or now < self._commit_at:
            return
        self._commit_at = now + COMMIT_SECONDS
        offsets = self._in_hand.to_commit()
        if offsets:
            self._is_committing = True
            consumer.commit(offsets=offsets, asynchronous=True)

    def _on_commit(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        """A commit that is lost costs redeliveries, which the inbox has seen."""
        self._is_committing = False
        refused = [one for one in partitions if error is not None or one.error is not None]
        self._in_hand.not_committed(_names(refused))
        if error is not None and not error.retriable() and error.code() not in _TOO_LATE:
            self._fail(KafkaException(error))

    def _on_assign(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._in_hand.assign(_names(partitions))

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """The last chance to say how far we are; what is not finished now is left to the next worker."""
        offsets = self._in_hand.to_commit(_names(partitions))
        self._on_lost(consumer, partitions)
        if offsets:
            with suppress(KafkaException):
                consumer.commit(offsets=offsets, asynchronous=True)

    def _on_lost(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        """Another worker has them already."""
        self._paused -= set(_names(partitions))
        self._in_hand.revoke(_names(partitions))

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal() or error.code() in (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED):
            self._fail(KafkaException(error))
        self._ends = self._ends or error.fatal()
        self._is_down = self._is_down or error.code() == KafkaError._ALL_BROKERS_DOWN

    def _fail(self, error: Exception) -> None:
        """The next call of `receive` raises it."""
        self._error = error
        self._tell()

    def _tell(self) -> None:
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._told.set)


def _checked(config: Mapping[str, Any]) -> Mapping[str, Any]:
    refused = sorted((_OWN_OPTIONS | _CALLBACKS) & set(config))
    if refused:
        raise InvalidValue(f"config has {refused[0]!r}, which the source sets itself.")
    reset = config.get("auto.offset.reset")
    if reset in _SKIPPING:
        raise InvalidValue(
            f"auto.offset.reset is {reset!r}: where the group has no offset, messages would be skipped. Leave it out,"
            ' or give "earliest" or "error". A group that shall begin at the end gets its offsets from'
            " kafka-consumer-groups --reset-offsets."
        )
    return config


def _asked(one: Assignment) -> TopicPartition | None:
    position = one.position
    if position is None or position == one.asked:
        return None
    one.asked = position
    return TopicPartition(one.topic, one.number, position)


def _names(partitions: Iterable[TopicPartition]) -> list[tuple[str, int]]:
    return [(one.topic, one.partition) for one in partitions]


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
