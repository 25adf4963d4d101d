"""Brokers that end, connections that are cut between publish and confirm: nothing is lost, and what is said is true."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any, Self

import pytest

from redrive.answers import Answer, Delivered, Retryable, Terminal, Unknown
from redrive.kit.proof.brokers.proxy import Mode, Proxy
from redrive.message import Attempt
from redrive.testing import make_attempt
from redrive.transports.brokers import BROKER_DOWN, CONFIRM_LOST
from tests.support.scratch import scratch
from tests.transports.brokers.conftest import BATCHING, CONFIRMING_EACH, DURABLE, KINDS
from tests.transports.brokers.subjects import Broker, BrokerSubject, answer_of, started

CUTS = 50
AT_ONCE = 200
BESIDE = 20  # senders under load
RESTARTS = 3
BETWEEN_RESTARTS = 150  # messages that are delivered before the next one
DOWN = f"Retryable {BROKER_DOWN}"
PAUSE_SECONDS = 0.02  # of a sender whose message was not delivered, as a relay's back-off


class Load:
    """Senders that send message after message, each again until it is delivered, as a relay does."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self.answers: Counter[str] = Counter()
        self.delivered: list[str] = []
        self._progress = asyncio.Condition()
        self._ends = False

    async def deliver(self, attempt: Attempt) -> None:
        while True:
            answer: Answer = await answer_of(self._transport, attempt)
            self.answers[f"{type(answer).__name__} {getattr(answer, 'code', '')}".strip()] += 1
            assert not isinstance(answer, Terminal), answer
            async with self._progress:
                self._progress.notify_all()
            if isinstance(answer, Delivered):
                break
            await asyncio.sleep(PAUSE_SECONDS)
        async with self._progress:
            self.delivered.append(attempt.token)
            self._progress.notify_all()

    async def until(self, count: int) -> None:
        async with self._progress:
            await self._progress.wait_for(lambda: len(self.delivered) >= count)

    async def until_down(self) -> None:
        """Somebody is told so once more."""
        async with self._progress:
            known = self.answers[DOWN]
            await self._progress.wait_for(lambda: self.answers[DOWN] > known)

    async def _send(self) -> None:
        while not self._ends:
            await self.deliver(make_attempt({"order": 1}))

    async def __aenter__(self) -> Self:
        self._senders = [asyncio.create_task(self._send()) for _ in range(BESIDE)]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._ends = True
        await asyncio.gather(*self._senders)


def assert_nothing_lost(name: str, load: Load, stored: list[str]) -> None:
    copies = Counter(stored)
    again = sum(copies.values()) - len(copies)
    print(
        f"\n{name}: {len(load.delivered)} delivered, {len(stored)} stored, {again} stored again; {dict(load.answers)}"
    )
    lost = [token for token in load.delivered if token not in copies]
    assert not lost, f"{len(lost)} of {len(load.delivered)} messages were confirmed and are not there"


@pytest.mark.req("G-13")
@pytest.mark.timeout(240)
async def test_a_connection_cut_between_publish_and_confirm_loses_nothing(subject: BrokerSubject) -> None:
    random = Random(7)
    subject.proxy.cut_after = lambda: random.randint(200, 20_000) if subject.proxy.cuts < CUTS else None
    async with Load(subject.transport) as load:
        while subject.proxy.cuts < CUTS:
            await load.until(len(load.delivered) + 1)
    assert subject.proxy.cuts == CUTS
    if subject.broker.name != "kafka":  # librdkafka repeats the request itself
        assert load.answers[f"Unknown {CONFIRM_LOST}"] > 0
    assert_nothing_lost(subject.broker.name, load, subject.broker.stored(subject.place))


@pytest.fixture(params=DURABLE)
def own_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """One that may be stopped."""
    with scratch(f"redrive-{request.param}-") as directory, started(KINDS[request.param](directory)) as broker:
        yield broker


@pytest.mark.req("G-13")
@pytest.mark.timeout(240)
async def test_a_broker_that_is_killed_and_started_again_under_load_loses_nothing(own_broker: Broker) -> None:
    own_broker.prepare("orders")
    transport: Any = own_broker.transport(own_broker.port, "orders")
    async with Load(transport) as load:
        for number in range(RESTARTS):
            await load.until(len(load.delivered) + BETWEEN_RESTARTS)
            own_broker.stop(signal.SIGTERM if number == 0 else signal.SIGKILL)
            await load.until_down()
            await asyncio.to_thread(own_broker.start)
        await load.until(len(load.delivered) + BETWEEN_RESTARTS)
    await transport.aclose()
    assert_nothing_lost(own_broker.name, load, own_broker.stored("orders"))


async def test_what_waits_for_its_confirm_when_the_connection_ends_is_in_doubt(subject: BrokerSubject) -> None:
    subject.proxy.mode, subject.proxy.expected = Mode.SWALLOW, 10
    sending = [asyncio.create_task(answer_of(subject.transport, make_attempt({"order": 1}))) for _ in range(10)]
    await subject.proxy.reached_all.wait()
    await subject.proxy.refuse()
    for answer in await asyncio.gather(*sending):
        assert (type(answer), answer.code) == (Unknown, CONFIRM_LOST)
    answer = await answer_of(subject.transport, make_attempt({"order": 1}))
    assert (type(answer), answer.code, answer.destination_down) == (Retryable, BROKER_DOWN, True)
    assert subject.effects() == []


async def test_a_confirm_that_does_not_come_in_time_is_in_doubt(broker: Broker) -> None:
    async with Proxy(broker.port) as proxy:
        proxy.rewrite = lambda said: broker.rewrite(said, proxy.port)
        broker.prepare("late")
        transport: Any = broker.transport(proxy.port, "late", confirm_seconds=0.5)
        proxy.mode = Mode.SWALLOW
        answer = await answer_of(transport, make_attempt({"order": 1}))
        assert (type(answer), answer.code) == (Unknown, CONFIRM_LOST)
        await transport.aclose()


@pytest.mark.parametrize("broker", CONFIRMING_EACH, indirect=True)
async def test_many_go_out_before_the_first_confirm_has_come(subject: BrokerSubject) -> None:
    """The proxy keeps every reply back until all of them have been sent: one round trip carries them all."""
    await subject.transport.send(make_attempt({"order": 0}))
    subject.proxy.messages, subject.proxy.expected, subject.proxy.mode = 0, AT_ONCE, Mode.HOLD_REPLIES
    subject.proxy.reached_all.clear()
    attempts = [make_attempt({"order": number}) for number in range(AT_ONCE)]
    answers = await asyncio.gather(*(subject.transport.send(attempt) for attempt in attempts))
    assert {type(answer) for answer in answers} == {Delivered}
    assert subject.proxy.messages == AT_ONCE


@pytest.mark.parametrize("broker", BATCHING, indirect=True)
async def test_many_at_once_take_few_round_trips(subject: BrokerSubject) -> None:
    """Counted in front of the broker: how often the client spoke after the broker had."""
    await subject.transport.send(make_attempt({"order": 0}))
    subject.proxy.round_trips = subject.proxy.messages = 0
    attempts = [make_attempt({"order": number}) for number in range(AT_ONCE)]
    answers = await asyncio.gather(*(subject.transport.send(attempt) for attempt in attempts))
    assert {type(answer) for answer in answers} == {Delivered}
    print(f"\n{subject.broker.name}: {AT_ONCE} messages in {subject.proxy.round_trips} round trips")
    assert subject.proxy.messages == AT_ONCE
    assert subject.proxy.round_trips <= AT_ONCE / 10
