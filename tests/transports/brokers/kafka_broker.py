"""Kafka as the tests of transports use it: what a topic holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from redrive.kit.proof.brokers import kafka
from redrive.kit.proof.brokers.kafka import CONFIG, WAIT_SECONDS
from redrive.testing import Condition
from redrive.transports.kafka import KafkaTransport

__all__ = ["CONFIG", "KafkaBroker"]


class KafkaBroker(kafka.KafkaServer):
    def transport(self, port: int, place: str, **options: Any) -> KafkaTransport:
        return kafka.transport(port, place, **options)

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


def _until_the_end(consumer: Consumer, partitions: int) -> Iterator[Any]:
    while partitions:
        (record,) = consumer.consume(1, WAIT_SECONDS)
        error = record.error()
        if error is None:
            yield record
            continue
        assert error.code() == KafkaError._PARTITION_EOF, error
        partitions -= 1
