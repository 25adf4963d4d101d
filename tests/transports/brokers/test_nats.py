"""NATS JetStream: subjects, headers, deduplication, and what each refusal means."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from nats.js.api import StreamConfig

from redrive.answers import Answer, Delivered, Retryable, Terminal
from redrive.errors import InvalidValue
from redrive.message import Attempt
from redrive.testing import make_attempt
from redrive.transports.nats import CloudEvents, NatsTransport
from tests.support.scratch import scratch
from tests.transports.brokers.nats_broker import NatsBroker
from tests.transports.brokers.subjects import Broker, answer_of, started


@pytest.fixture
def nats(running: dict[str, Broker]) -> NatsBroker:
    found = running["nats"]
    assert isinstance(found, NatsBroker)
    return found


@pytest.fixture
def place(nats: NatsBroker) -> str:
    name = f"p{uuid4().hex}"
    nats.prepare(name)
    return name


async def sent(url: str, *attempts: Attempt, **options: Any) -> list[Answer]:
    transport = NatsTransport(url, **options)
    try:
        return [await answer_of(transport, attempt) for attempt in attempts]
    finally:
        await transport.aclose()


async def test_the_body_goes_out_as_it_was_enqueued_with_its_token_and_headers(nats: NatsBroker, place: str) -> None:
    attempt = make_attempt({"order": 1}, headers={"X Trace": "grün", "content-type": "x"}, order_by="a.b c>*%ü")
    (answer,) = await sent(nats.url, attempt, subject=f"{place}.{{order_by}}.{{kind}}")
    assert answer == Delivered(f"{place}:1")
    ((subject, headers, body),) = nats.read(place)
    assert (subject, body) == (f"{place}.a%2Eb%20c%3E%2A%25%C3%BC.-", attempt.body)
    assert headers == {
        "X%20Trace": "grün",
        "content-type": "application/json",
        "idempotency-key": attempt.token,
        "redrive-order-by": "a.b c>*%ü",
        "Nats-Msg-Id": attempt.token,
    }


async def test_a_second_copy_within_the_window_is_confirmed_and_not_stored(nats: NatsBroker, place: str) -> None:
    attempt = make_attempt({"order": 1})
    answers = await sent(nats.url, attempt, attempt, subject=f"{place}.x")
    assert answers == [Delivered(f"{place}:1"), Delivered(f"{place}:1")]
    assert nats.stored(place) == [attempt.token]


async def test_an_edited_message_is_no_copy(nats: NatsBroker, place: str) -> None:
    first = make_attempt({"order": 1})
    edited = make_attempt({"order": 2}, id=first.id, version=2)
    await sent(nats.url, first, edited, subject=f"{place}.x")
    assert [body for _, _, body in nats.read(place)] == [first.body, edited.body]


async def test_cloud_events_in_both_modes(nats: NatsBroker, place: str) -> None:
    attempt = make_attempt({"order": 1}, kind="order.placed", order_by="Käufer")
    await sent(nats.url, attempt, subject=f"{place}.x", cloudevents=CloudEvents("/shop"))
    other = make_attempt({"order": 2}, kind="order.placed")
    await sent(nats.url, other, subject=f"{place}.x", cloudevents=CloudEvents("/shop", mode="structured"))
    (_, binary, body), (_, structured, document) = nats.read(place)
    assert (binary["ce-id"], binary["ce-type"], binary["ce-subject"]) == (
        str(attempt.id),
        "order.placed",
        "K%C3%A4ufer",
    )
    assert (binary["content-type"], body) == ("application/json", attempt.body)
    assert structured["content-type"] == "application/cloudevents+json"
    assert json.loads(document)["data"] == {"order": 2}


async def test_a_subject_that_no_stream_takes_is_retried(nats: NatsBroker, place: str) -> None:
    (answer,) = await sent(nats.url, make_attempt(1), subject="nowhere.x")
    assert (type(answer), getattr(answer, "code", "")) == (Retryable, "STREAM_MISSING")
    (answer,) = await sent(nats.url, make_attempt(1), subject=f"{place}.x", stream="other")
    assert (type(answer), getattr(answer, "code", "")) == (Retryable, "STREAM_MISSING")
    assert nats.stored(place) == []


async def test_what_is_too_large_is_refused_with_size_and_bound(nats: NatsBroker, place: str) -> None:
    answers = await sent(nats.url, make_attempt("x" * 100_000), make_attempt(1), subject=f"{place}.x")
    assert isinstance(answers[0], Terminal)
    assert answers[0].code == "TOO_LARGE"
    assert "100," in answers[0].text
    assert "65,536" in answers[0].text
    assert isinstance(answers[1], Delivered), "the connection is as good as before"
    nats.ask(lambda js: js.update_stream(StreamConfig(name=place, subjects=[f"{place}.>"], max_msg_size=300)))
    (answer,) = await sent(nats.url, make_attempt("x" * 300), subject=f"{place}.x")
    assert (type(answer), getattr(answer, "code", "")) == (Terminal, "TOO_LARGE")


@pytest.mark.parametrize("subject", ["orders x", ""])
async def test_a_function_that_gives_no_subject_is_terminal(nats: NatsBroker, subject: str) -> None:
    (answer,) = await sent(nats.url, make_attempt(1), subject=lambda _: subject)
    assert (type(answer), getattr(answer, "code", "")) == (Terminal, "REFUSED")


async def test_a_function_that_raises_is_a_bug_before_anything_went_out(nats: NatsBroker) -> None:
    (answer,) = await sent(nats.url, make_attempt(1), subject=lambda attempt: attempt.headers["missing"])
    assert (type(answer), getattr(answer, "bug", False)) == (Terminal, True)


@pytest.mark.parametrize(
    "options", [{"subject": "orders.{id}"}, {"subject": ""}, {"subject": "x", "confirm_seconds": 0}]
)
def test_nonsense_is_refused_where_it_is_declared(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        NatsTransport("nats://127.0.0.1", **options)


USERS = """
authorization { users = [
    { user: owner, password: o }
    { user: shop, password: s, permissions: { publish: ["orders.>"], subscribe: ["_INBOX.>"] } }
] }
"""


@pytest.fixture(scope="module")
def guarded() -> Iterator[NatsBroker]:
    with scratch("redrive-nats-") as directory, started(NatsBroker(directory, config=USERS)) as broker:
        yield broker


@pytest.mark.parametrize("user", ["nobody:x@", "shop:wrong@", ""])
async def test_a_refused_login_waits_for_credentials(guarded: NatsBroker, user: str) -> None:
    (answer,) = await sent(f"nats://{user}127.0.0.1:{guarded.port}", make_attempt(1), subject="orders.x")
    assert isinstance(answer, Retryable)
    assert (answer.code, answer.destination_down) == ("NOT_AUTHORISED", True)


async def test_a_refused_subject_is_terminal_and_its_neighbours_are_delivered(guarded: NatsBroker) -> None:
    owner = f"nats://owner:o@127.0.0.1:{guarded.port}"
    guarded.ask(lambda js: js.add_stream(StreamConfig(name="all", subjects=["orders.>", "secret.>"])), owner)
    url = f"nats://shop:s@127.0.0.1:{guarded.port}"
    answers = await sent(
        url, make_attempt(1), make_attempt(1), subject=lambda a: "secret.x" if not served(a) else "orders.x"
    )
    assert [type(answer) for answer in answers] == [Terminal, Delivered]
    assert getattr(answers[0], "code", "") == "NOT_AUTHORISED"


def served(attempt: Attempt, seen: list[str] = []) -> bool:  # noqa: B006 - the first one is refused
    seen.append(attempt.token)
    return len(seen) > 1
