"""Kafka: the cluster that `REDRIVE_KAFKA_BOOTSTRAP` names, else librdkafka's mock cluster (in memory, one broker). A
place is a topic."""

import os
import signal
import struct
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from redrive.sources.kafka import KafkaSource
from redrive.transports.kafka import KafkaTransport

VARIABLE: Final = "REDRIVE_KAFKA_BOOTSTRAP"
WAIT_SECONDS: Final = 30.0
PARTITIONS: Final = 4
CONFIG: Final = {"reconnect.backoff.ms": "10", "reconnect.backoff.max.ms": "50", "log_level": "0"}


def missing() -> str:
    return ""


def transport(port: int, place: str, **options: Any) -> KafkaTransport:
    given = {"topic": place, "config": CONFIG, "connect_seconds": 1.0, "confirm_seconds": 2.0, **options}
    return KafkaTransport(f"127.0.0.1:{port}", **given)


def source(port: int, place: str, *, consumer: str) -> KafkaSource:
    # A real cluster wants 6 seconds at least (`group.min.session.timeout.ms`), the mock cluster more than 3.
    session_ms = 6000 if os.environ.get(VARIABLE) else 3500
    config = {**CONFIG, "session.timeout.ms": session_ms, "heartbeat.interval.ms": 300}
    return KafkaSource(f"127.0.0.1:{port}", topics=place, group=consumer, config=config)


class KafkaServer:
    """The mock cluster lives in this process, and loses everything when it is stopped."""

    name = "kafka"
    survives = False

    def __init__(self, _: Path) -> None:
        self._given = os.environ.get(VARIABLE, "")
        self._mock: Producer | None = None
        self.port = 0

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

    def stop(self, number: int = signal.SIGTERM) -> None:  # noqa: ARG002 - as of every broker
        self._mock = None

    def prepare(self, place: str) -> None:
        """The mock cluster makes a topic when it is first asked for, and cannot be told to."""
        if self._given:
            admin = AdminClient({"bootstrap.servers": self.bootstrap})
            admin.create_topics([NewTopic(place, num_partitions=PARTITIONS)])[place].result(WAIT_SECONDS)

    def left(self, place: str, consumer: str) -> int:
        committed, ends = self.offsets(place, consumer)
        return sum(ends.values()) - sum(committed.values())

    def offsets(self, place: str, consumer: str) -> tuple[dict[int, int], dict[int, int]]:
        """Of each partition: the offset that the group has committed, and the end."""
        client = Consumer({"bootstrap.servers": self.bootstrap, "group.id": consumer, "log_level": 0})
        try:
            found = client.list_topics(place, timeout=WAIT_SECONDS).topics[place].partitions
            partitions = [TopicPartition(place, number) for number in found]
            ends = {one.partition: client.get_watermark_offsets(one, timeout=WAIT_SECONDS)[1] for one in partitions}
            committed = client.committed(partitions, timeout=WAIT_SECONDS)
        finally:
            client.close()
        return {one.partition: max(one.offset, 0) for one in committed}, ends

    def rewrite(self, said: bytes, port: int) -> bytes:
        """The mock cluster names its own port, behind its address; a client would go there past the proxy."""
        return said.replace(b"127.0.0.1" + struct.pack(">i", self.port), b"127.0.0.1" + struct.pack(">i", port))


server = KafkaServer
