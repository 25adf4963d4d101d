"""The brokers, one process of each for all tests of a worker."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from redrive.kit.proof.brokers.proxy import Proxy
from tests.support.scratch import scratch
from tests.transports.brokers.kafka_broker import KafkaBroker
from tests.transports.brokers.nats_broker import NatsBroker
from tests.transports.brokers.rabbit_broker import RabbitBroker
from tests.transports.brokers.redis_broker import RedisBroker
from tests.transports.brokers.subjects import Broker, BrokerSubject, started

KINDS: dict[str, Callable[[Path], Any]] = {
    "nats": NatsBroker,
    "redis": RedisBroker,
    "rabbitmq": RabbitBroker,
    "kafka": KafkaBroker,
}
RABBIT = pytest.param("rabbitmq", marks=pytest.mark.full)
BROKERS = ["nats", "redis", "kafka", RABBIT]
DURABLE = ["nats", "redis", RABBIT]  # what they confirmed survives their end
CONFIRMING_EACH = DURABLE
BATCHING = ["nats", "redis", "kafka"]  # they write many messages at once


@pytest.fixture(scope="session")
def running() -> Iterator[dict[str, Broker]]:
    """Those that a test has asked for so far."""
    with ExitStack() as stack:

        class Running(dict[str, Broker]):
            def __missing__(self, name: str) -> Broker:
                directory = stack.enter_context(scratch(f"redrive-{name}-"))
                self[name] = stack.enter_context(started(KINDS[name](directory)))
                return self[name]

        yield Running()


@pytest.fixture(params=BROKERS)
def broker(running: dict[str, Broker], request: pytest.FixtureRequest) -> Broker:
    return running[request.param]


@pytest.fixture
async def subject(broker: Broker) -> AsyncIterator[BrokerSubject]:
    async with Proxy(broker.port) as proxy:
        proxy.rewrite = lambda said: broker.rewrite(said, proxy.port)
        made = BrokerSubject(broker, proxy)
        yield made
        await made.transport.aclose()
