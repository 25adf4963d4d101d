"""Kafka: keys, headers, options, and what each error means."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import KafkaError

from redrive.answers import Answer, Delivered, Retryable, Terminal, Unknown
from redrive.errors import InvalidValue
from redrive.message import Attempt
from redrive.testing import make_attempt
from redrive.transports import kafka as module
from redrive.transports.kafka import CloudEvents, KafkaTransport
from tests.transports.brokers.kafka_broker import CONFIG, KafkaBroker
from tests.transports.brokers.subjects import Broker, answer_of


@pytest.fixture
def kafka(running: dict[str, Broker]) -> KafkaBroker:
    found: Any = running["kafka"]
    assert isinstance(found, KafkaBroker)
    return found


@pytest.fixture
def place(kafka: KafkaBroker) -> str:
    name = f"p{uuid4().hex}"
    kafka.prepare(name)
    return name


async def sent(kafka: KafkaBroker, *attempts: Attempt, **options: Any) -> list[Answer]:
    transport = KafkaTransport(kafka.bootstrap, **{"config": CONFIG, **options})
    try:
        return [await answer_of(transport, attempt) for attempt in attempts]
    finally:
        await transport.aclose()


async def test_a_record_has_the_body_the_token_and_the_ordering_key(kafka: KafkaBroker, place: str) -> None:
    attempt = make_attempt({"order": 1}, headers={"X Trace": "grün", "Content-Type": "x"}, order_by="Käufer 1")
    (answer,) = await sent(kafka, attempt, topic=place)
    assert isinstance(answer, Delivered)
    assert (answer.reference or "").startswith(f"{place}:")
    ((key, headers, body),) = kafka.read(place)
    assert (key, body) == ("Käufer 1".encode(), attempt.body)
    assert {name: value.decode() for name, value in headers.items()} == {
        "X Trace": "grün",
        "content-type": "application/json",
        "idempotency-key": attempt.token,
        "redrive-order-by": "Käufer 1",
    }


async def test_messages_of_one_key_are_in_one_partition_in_their_order(kafka: KafkaBroker, place: str) -> None:
    attempts = [make_attempt(number, order_by="one") for number in range(20)]
    answers = await sent(kafka, *attempts, topic=place)
    places = [(answer.reference or "").split(":") for answer in answers if isinstance(answer, Delivered)]
    assert len({partition for _, partition, _ in places}) == 1
    assert [int(offset) for _, _, offset in places] == list(range(20))


async def test_cloud_events_in_both_modes(kafka: KafkaBroker, place: str) -> None:
    await sent(kafka, make_attempt({"order": 1}, order_by="Ä"), topic=place, cloudevents=CloudEvents("/shop"))
    structured = CloudEvents("/shop", mode="structured")
    await sent(kafka, make_attempt({"order": 2}), topic=place, cloudevents=structured)
    (_, binary, _), (_, other, document) = kafka.read(place)
    assert (binary["ce_source"], binary["ce_subject"].decode()) == (b"/shop", "Ä")
    assert other["content-type"] == b"application/cloudevents+json"
    assert json.loads(document)["data"] == {"order": 2}


async def test_what_is_too_large_is_refused_with_size_and_bound(kafka: KafkaBroker, place: str) -> None:
    answers = await sent(kafka, make_attempt("x" * 2000), make_attempt(1), topic=place, message_bytes_max=1500)
    assert isinstance(answers[0], Terminal)
    assert answers[0].code == "TOO_LARGE"
    assert "at most 1,500" in answers[0].text
    assert isinstance(answers[1], Delivered)


@pytest.mark.parametrize("topic", ["no topic", "x" * 250, "", ".."])
async def test_a_topic_that_cannot_be_is_terminal(kafka: KafkaBroker, topic: str) -> None:
    (answer,) = await sent(kafka, make_attempt(1), topic=lambda _: topic)
    assert (type(answer), getattr(answer, "code", "")) == (Terminal, "REFUSED")


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        (KafkaError._MSG_TIMED_OUT, Unknown, "CONFIRM_LOST"),
        (KafkaError._PURGE_INFLIGHT, Unknown, "CONFIRM_LOST"),
        (KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND, Unknown, "CONFIRM_LOST"),
        (KafkaError._TRANSPORT, Unknown, "CONFIRM_LOST"),
        (KafkaError._PURGE_QUEUE, Retryable, "BROKER_DOWN"),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, Retryable, "STREAM_MISSING"),
        (KafkaError._UNKNOWN_TOPIC, Retryable, "STREAM_MISSING"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, Terminal, "NOT_AUTHORISED"),
        (KafkaError.MSG_SIZE_TOO_LARGE, Terminal, "TOO_LARGE"),
    ],
)
def test_an_error_that_leaves_open_what_happened_is_a_doubt(error: int, kind: type[Answer], code: str) -> None:
    answer = module._answer(KafkaError(error), None)
    assert (type(answer), getattr(answer, "code", "")) == (kind, code)


@pytest.mark.parametrize(
    "options",
    [{"topic": "{id}"}, {"topic": "x", "config": {"acks": "0"}}, {"topic": "x", "confirm_seconds": 0}],
)
def test_nonsense_is_refused_where_it_is_declared(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        KafkaTransport("127.0.0.1:9092", **options)
