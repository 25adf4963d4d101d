"""Kafka: the cluster that `REDRIVE_KAFKA_BOOTSTRAP` names, else librdkafka's mock cluster (in memory, one broker)."""

from __future__ import annotations

import os
import signal
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from redrive.testing import Condition
from redrive.transports.kafka import KafkaTransport

WAIT_SECONDS = 30.0
CONFIG = {"reconnect.backoff.ms": "10", "reconnect.backoff.max.ms": "50", "log_level": "0"}


class KafkaBroker:
    name = "kafka"
    port = 0

    def __init__(self, directory: Path) -> None:
        self._given = os.environ.get("REDRIVE_KAFKA_BOOTSTRAP", "")
        self._mock: Producer | None = None
        self._bound: dict[str, int] = {}

    @property
    def bootstrap(self) -> str:
        return self._given or f"127.0.0.1:{self.port}"

    def start(self) -> None:
        if self._given:
            self.port = int(self._given.partition(",")[0].rpartition(":")[2])
            return
        self._mock = Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": 1, "log_level": 0})
        (broker,) = self._mock.list_topics(timeout=WAIT_SECONDS).brokers.values()
        self.port = broker.port

    def stop(self, number: int = signal.SIGTERM) -> None:
        self._mock = None

    def transport(self, port: int, place: str, **options: Any) -> KafkaTransport:
        given = {"topic": place, "config": CONFIG, "connect_seconds": 1.0, "confirm_seconds": 2.0, **options}
        return KafkaTransport(f"127.0.0.1:{port}", **given)

    def prepare(self, place: str) -> None:
        """The mock cluster makes a topic when it is first asked for, and cannot be told to."""
        if self._given:
            admin = AdminClient({"bootstrap.servers": self.bootstrap})
            admin.create_topics([NewTopic(place, num_partitions=4)])[place].result(WAIT_SECONDS)

    def set_condition(self, place: str, condition: Condition) -> None:
        if condition is not Condition.WELL:
            raise NotImplementedError

    def stored(self, place: str) -> list[str]:
        return [headers["idempotency-key"].decode() for _, headers, _ in self.read(place)]

    def read(self, place: str) -> list[tuple[bytes | None, dict[str, bytes], bytes]]:
        """Key, headers and body of every record of all partitions, by their times."""
        consumer = Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": "reader", "enable.partition.eof": True, "log_level": 0}
        )
        try:
            partitions = consumer.list_topics(place, timeout=WAIT_SECONDS).topics[place].partitions
            consumer.assign([TopicPartition(place, number, OFFSET_BEGINNING) for number in partitions])
            records = list(_until_the_end(consumer, len(partitions)))
        finally:
            consumer.close()
        records.sort(key=lambda record: record.timestamp()[1])
        return [(record.key(), dict(record.headers() or []), record.value() or b"") for record in records]

    def rewrite(self, said: bytes, port: int) -> bytes:
        """The mock cluster names its own port, behind its address; a client would go there past the proxy."""
        return said.replace(b"127.0.0.1" + struct.pack(">i", self.port), b"127.0.0.1" + struct.pack(">i", port))


def _until_the_end(consumer: Consumer, partitions: int) -> Iterator[Any]:
    while partitions:
        (record,) = consumer.consume(1, WAIT_SECONDS)
        error = record.error()
        if error is None:
            yield record
            continue
        assert error.code() == KafkaError._PARTITION_EOF, error
        partitions -= 1
