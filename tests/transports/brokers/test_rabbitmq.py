"""RabbitMQ: routing, properties, and what each refusal means."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from uuid import uuid4

import pytest
from aio_pika import ExchangeType

from redrive.answers import Answer, Delivered, Retryable, Terminal, Unknown
from redrive.errors import InvalidValue
from redrive.message import Attempt
from redrive.testing import make_attempt
from redrive.transports.rabbitmq import CloudEvents, RabbitTransport
from tests.transports.brokers.rabbit_broker import RabbitBroker
from tests.transports.brokers.subjects import Broker, answer_of

pytestmark = pytest.mark.full


@pytest.fixture
def rabbit(running: dict[str, Broker]) -> RabbitBroker:
    found = running["rabbitmq"]
    assert isinstance(found, RabbitBroker)
    return found


@pytest.fixture
def place(rabbit: RabbitBroker) -> str:
    name = f"p{uuid4().hex}"
    rabbit.prepare(name)
    return name


async def sent(url: str, *attempts: Attempt, **options: Any) -> list[Answer]:
    transport = RabbitTransport(url, **options)
    try:
        return [await answer_of(transport, attempt) for attempt in attempts]
    finally:
        await transport.aclose()


def code(answer: Answer) -> tuple[type[Answer], str]:
    return type(answer), getattr(answer, "code", "")


async def test_the_body_goes_out_persistent_with_its_token_and_headers(rabbit: RabbitBroker, place: str) -> None:
    attempt = make_attempt(
        {"order": 1}, headers={"X Trace": "grün", "Content-Type": "x"}, order_by="ä.1", kind="placed"
    )
    assert await sent(rabbit.url, attempt, routing_key=place) == [Delivered(attempt.token)]
    (message,) = rabbit.read(place)
    assert (message.body, message.content_type, message.type) == (attempt.body, "application/json", "placed")
    assert (message.message_id, message.delivery_mode) == (attempt.token, 2)
    assert message.headers == {"X Trace": "grün", "idempotency-key": attempt.token, "redrive-order-by": "ä.1"}


async def test_the_ordering_key_is_a_word_of_the_routing_key(rabbit: RabbitBroker, place: str) -> None:
    async def bind(channel: Any) -> None:
        exchange = await channel.declare_exchange(f"{place}x", ExchangeType.TOPIC, durable=True)
        queue = await channel.get_queue(place)
        await queue.bind(exchange, "orders.*")

    rabbit.ask(bind)
    options = {"exchange": f"{place}x", "routing_key": "orders.{order_by}"}
    answers = await sent(rabbit.url, make_attempt(1, order_by="a.b #*"), make_attempt(1), **options)
    assert [type(answer) for answer in answers] == [Delivered, Delivered]
    assert [message.routing_key for message in rabbit.read(place)] == ["orders.a%2Eb%20%23%2A", "orders.-"]


async def test_cloud_events_in_both_modes(rabbit: RabbitBroker, place: str) -> None:
    await sent(rabbit.url, make_attempt({"order": 1}), routing_key=place, cloudevents=CloudEvents("/shop"))
    structured = CloudEvents("/shop", mode="structured")
    await sent(rabbit.url, make_attempt({"order": 2}), routing_key=place, cloudevents=structured)
    binary, other = rabbit.read(place)
    assert (binary.headers["cloudEvents_source"], binary.content_type) == ("/shop", "application/json")
    assert other.content_type == "application/cloudevents+json"
    assert json.loads(other.body)["data"] == {"order": 2}


async def test_a_key_without_a_queue_is_unroutable_and_an_exchange_that_is_missing_is_waited_for(
    rabbit: RabbitBroker, place: str
) -> None:
    answers = await sent(rabbit.url, make_attempt(1), routing_key=f"{place}-not")
    answers += await sent(rabbit.url, make_attempt(1), routing_key=place, exchange=f"{place}-not")
    assert [code(answer) for answer in answers] == [(Terminal, "UNROUTABLE"), (Retryable, "STREAM_MISSING")]


async def test_what_is_too_large_is_refused(rabbit: RabbitBroker, place: str) -> None:
    large = make_attempt("x" * 70_000)
    answers = await sent(rabbit.url, large, routing_key=place, message_bytes_max=65_536)
    assert answers == [Terminal("TOO_LARGE", "The message has 70,002 bytes; the broker takes at most 65,536.")]
    answers = await sent(rabbit.url, large, make_attempt(1), routing_key=place)  # the broker's own word
    assert [code(answer) for answer in answers] == [(Terminal, "TOO_LARGE"), (Delivered, "")]
    (answer,) = await sent(rabbit.url, make_attempt(1), routing_key=lambda _: "x" * 256)
    assert code(answer) == (Terminal, "REFUSED")


async def test_one_that_closes_the_channel_does_not_lose_its_neighbours(rabbit: RabbitBroker, place: str) -> None:
    """Which of them was too large is not said: all are in doubt once, then each is sent alone."""
    transport = RabbitTransport(rabbit.url, routing_key=place)
    attempts = [make_attempt("x" * 70_000) if number == 5 else make_attempt(number) for number in range(10)]
    answers = await asyncio.gather(*(answer_of(transport, attempt) for attempt in attempts))
    assert {type(answer) for answer in answers} <= {Unknown, Delivered}
    again = await asyncio.gather(*(answer_of(transport, attempt) for attempt in attempts))
    await transport.aclose()
    assert [type(answer) for answer in again] == [Delivered] * 5 + [Terminal] + [Delivered] * 4


async def test_a_queue_that_is_full_is_no_delivery(rabbit: RabbitBroker, place: str) -> None:
    arguments: Any = {"x-max-length": 1, "x-overflow": "reject-publish"}
    rabbit.ask(lambda channel: channel.declare_queue(f"{place}f", durable=True, arguments=arguments))
    answers = await sent(rabbit.url, make_attempt(1), make_attempt(2), routing_key=f"{place}f")
    assert [code(answer) for answer in answers] == [(Delivered, ""), (Unknown, "NACKED")]


@pytest.mark.parametrize(("user", "host"), [("guest:wrong", ""), ("nobody:x", ""), ("guest:guest", "nowhere")])
async def test_a_refused_login_waits_for_credentials(rabbit: RabbitBroker, place: str, user: str, host: str) -> None:
    (answer,) = await sent(f"amqp://{user}@127.0.0.1:{rabbit.port}/{host}", make_attempt(1), routing_key=place)
    assert isinstance(answer, Retryable)
    assert (answer.code, answer.destination_down) == ("NOT_AUTHORISED", True)


@pytest.mark.parametrize(
    "options", [{"routing_key": "{id}"}, {"routing_key": ""}, {"routing_key": "x", "confirm_seconds": 0}]
)
def test_nonsense_is_refused_where_it_is_declared(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        RabbitTransport("amqp://127.0.0.1/", **options)
    with pytest.raises(InvalidValue, match="url must begin with"):
        RabbitTransport("127.0.0.1", routing_key="x")
