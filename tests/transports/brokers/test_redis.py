"""Redis streams: entries, pipelines, and what each refusal means."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from uuid import uuid4

import pytest

from redrive.answers import Answer, Delivered, Retryable, Terminal
from redrive.errors import InvalidValue
from redrive.message import Attempt
from redrive.testing import make_attempt
from redrive.transports.redis import CloudEvents, RedisTransport
from tests.transports.brokers.redis_broker import RedisBroker
from tests.transports.brokers.subjects import Broker, answer_of


@pytest.fixture
def redis(running: dict[str, Broker]) -> RedisBroker:
    found = running["redis"]
    assert isinstance(found, RedisBroker)
    return found


@pytest.fixture
def place() -> str:
    return f"p{uuid4().hex}"


async def sent(url: str, *attempts: Attempt, **options: Any) -> list[Answer]:
    transport = RedisTransport(url, **options)
    try:
        return [await answer_of(transport, attempt) for attempt in attempts]
    finally:
        await transport.aclose()


def code(answer: Answer) -> tuple[type[Answer], str]:
    return type(answer), getattr(answer, "code", "")


async def test_an_entry_has_the_body_the_token_and_the_headers(redis: RedisBroker, place: str) -> None:
    attempt = make_attempt({"order": 1}, headers={"X Trace": "grün", "Content-Type": "x"}, order_by="ä:1")
    (answer,) = await sent(redis.url, attempt, stream=f"{place}:{{order_by}}")
    ((id, fields),) = redis.read(f"{place}:ä:1")
    assert answer == Delivered(id.decode())
    assert {name.decode(): value.decode() for name, value in fields.items()} == {
        "X Trace": "grün",
        "content-type": "application/json",
        "idempotency-key": attempt.token,
        "redrive-order-by": "ä:1",
        "data": attempt.body.decode(),
    }


async def test_cloud_events_in_both_modes(redis: RedisBroker, place: str) -> None:
    await sent(redis.url, make_attempt({"order": 1}, order_by="Käufer"), stream=place, cloudevents=CloudEvents("/shop"))
    structured = CloudEvents("/shop", mode="structured")
    await sent(redis.url, make_attempt({"order": 2}), stream=place, cloudevents=structured)
    (_, binary), (_, other) = redis.read(place)
    assert (binary[b"ce-source"], binary[b"ce-subject"].decode()) == (b"/shop", "Käufer")
    assert other[b"content-type"] == b"application/cloudevents+json"
    assert json.loads(other[b"data"])["data"] == {"order": 2}


async def test_a_stream_that_is_not_there_is_made_or_waited_for(redis: RedisBroker, place: str) -> None:
    (answer,) = await sent(redis.url, make_attempt(1), stream=place, create=False)
    assert code(answer) == (Retryable, "STREAM_MISSING")
    answers = await sent(redis.url, make_attempt(1), make_attempt(1), stream=place, length_max=1000)
    assert [type(answer) for answer in answers] == [Delivered, Delivered]


async def test_what_is_too_large_is_refused_with_size_and_bound(redis: RedisBroker, place: str) -> None:
    (answer,) = await sent(redis.url, make_attempt("x" * 100), stream=place, message_bytes_max=100)
    assert answer == Terminal("TOO_LARGE", "The message has 102 bytes; the broker takes at most 100.")


async def test_one_refusal_in_a_pipeline_is_no_ones_else(redis: RedisBroker, place: str) -> None:
    with redis.client() as client:
        client.set(f"{place}:b", "no stream")
    transport = RedisTransport(redis.url, stream=f"{place}:{{kind}}")
    kinds = ["a", "b", "a", "b", "a"]
    answers = await asyncio.gather(*(transport.send(make_attempt(1, kind=kind)) for kind in kinds))
    await transport.aclose()
    assert [type(answer) for answer in answers] == [Delivered, Terminal, Delivered, Terminal, Delivered]
    assert len(redis.stored(f"{place}:a")) == 3


async def test_a_refused_login_waits_and_a_refused_stream_is_terminal(redis: RedisBroker, place: str) -> None:
    with redis.client() as client:
        client.execute_command("ACL", "SETUSER", "shop", "on", ">pw", "~orders:*", "+@all")
    refused, key = (f"redis://shop:{password}@127.0.0.1:{redis.port}" for password in ("wrong", "pw"))
    (answer,) = await sent(refused, make_attempt(1), stream="orders:1")
    assert isinstance(answer, Retryable)
    assert (answer.code, answer.destination_down) == ("NOT_AUTHORISED", True)
    assert [code(one) for one in await sent(key, make_attempt(1), stream=place)] == [(Terminal, "NOT_AUTHORISED")]
    assert [type(one) for one in await sent(key, make_attempt(1), stream="orders:1")] == [Delivered]


@pytest.mark.parametrize(
    "options", [{"stream": "{id}"}, {"stream": "x", "length_max": 0}, {"stream": "x", "confirm_seconds": 0}]
)
def test_nonsense_is_refused_where_it_is_declared(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        RedisTransport("redis://127.0.0.1", **options)
    with pytest.raises(InvalidValue, match="url must begin with"):
        RedisTransport("127.0.0.1", stream="x")
