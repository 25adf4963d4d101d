"""Topics of Kafka as a source: a consumer group, whose offsets follow the commits in PostgreSQL. Needs the extra
`kafka`.

    source=lambda: KafkaSource("kafka.internal:9092", topics="orders", group="billing")

A thread polls, also while handlers are slow, so that the group does not exclude this worker. The offset of a partition
is committed up to its first unfinished message. A partition that is revoked takes its unfinished messages with it: its
next worker gets them, and the inbox knows those that were processed meanwhile.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from redrive.errors import InvalidValue
from redrive.ports.sources import Delivery
from redrive.sources.kafka_partitions import InHand

__all__ = ["KafkaSource"]

WAIT_SECONDS: Final = 1.0
POLL_SECONDS: Final = 0.1
COMMIT_SECONDS: Final = 0.25  # at most one commit of offsets in this time
CLOSE_SECONDS: Final = 10.0
REACH_SECONDS: Final = 3.0
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


class Poller:
    """A consumer of librdkafka and the thread that has it. It ends when it is stopped, or when the consumer is broken
    for good."""

    def __init__(self, options: Mapping[str, Any], topics: list[str]) -> None:
        self._options, self._topics, self._in_hand = options, topics, InHand()
        self._loop = asyncio.get_running_loop()
        self._told = asyncio.Event()
        self._errors: deque[Exception] = deque(maxlen=1)
        self._ends = self._is_committing = False
        self._is_down = True  # until a broker has answered
        self._commit_at = 0.0
        self._paused: set[tuple[str, int]] = set()
        self._thread = threading.Thread(target=self._run, name="redrive kafka source", daemon=True)
        self._thread.start()

    @property
    def has_ended(self) -> bool:
        return not self._thread.is_alive() and not self._errors

    async def receive(self, limit: int) -> list[Delivery]:
        """Waits about a second for the first message, longer while no broker answers. Raises what has gone wrong."""
        self._told.clear()
        if not self._in_hand.ready:
            await self._wait_for(limit)
        if self._errors:
            raise self._errors.pop()
        return self._in_hand.take(limit)

    async def _wait_for(self, count: int) -> None:
        self._in_hand.want(count)
        try:
            if not self._errors and self._thread.is_alive():
                seconds = WAIT_SECONDS + (REACH_SECONDS if self._is_down else 0)
                await asyncio.wait_for(self._told.wait(), seconds)
        except TimeoutError:
            pass
        finally:
            self._in_hand.want(0)  # also when it is cancelled

    async def stop(self) -> None:
        self._ends = True
        self._in_hand.close()
        await asyncio.to_thread(self._thread.join, CLOSE_SECONDS)

    def _run(self) -> None:
        try:
            consumer = Consumer({**self._options, "error_cb": self._on_error, "on_commit": self._on_commit})
            try:
                consumer.subscribe(
                    self._topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
                )
                while not self._ends and not self._loop.is_closed():
                    self._turn(consumer)
            finally:
                consumer.close()  # it revokes first, and then leaves the group
        except Exception as error:
            self._fail(error)
        finally:
            self._in_hand.revoke(self._in_hand.assigned)
            self._tell()

    def _turn(self, consumer: Consumer) -> None:
        """While the worker wants no more the partitions are paused, and polling goes on."""
        if self._in_hand.wait_for_room(WAIT_SECONDS):
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
            record = consumer.poll(0) if self._in_hand.wait_for_room() else None
        if self._in_hand.ready:
            self._tell()

    def _take(self, record: Message | None) -> None:
        if record is None:
            return
        error = record.error()
        if error is None:
            self._is_down = False
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
        """librdkafka connects by itself, and does not say when it has. A message or an assignment says so too."""
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
        self._is_down = False
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
        self._errors.append(error)
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


def _names(partitions: Iterable[TopicPartition]) -> list[tuple[str, int]]:
    return [(one.topic, one.partition) for one in partitions]
