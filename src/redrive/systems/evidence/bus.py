"""The broker behind the topics: NATS JetStream, which Redrive brings along, or Kafka where a setting says so.

    NatsBus("nats://127.0.0.1:4222")            one stream, EVIDENCE, takes all topics
    KafkaBus("kafka.internal:9092")             a topic of the same name for each

Publishing and consuming are the engine's own transports and sources: a message counts as published when the broker has
confirmed it, and as consumed when its transaction has committed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from redrive import App, Breaker, Destination
from redrive.systems.evidence.consumers import CATEGORY_TOPICS, Handler, requests_handler, results_handler
from redrive.systems.evidence.names import (
    ARTIFACT_RESULT,
    ATTACH_REQUEST,
    ATTACH_REQUESTS,
    ATTACH_RESULTS,
    ATTACH_RETRY,
    FAILED_REQUESTS,
    TOPICS,
)
from redrive.systems.evidence.settings import EvidenceSettings

STREAM: Final = "EVIDENCE"
GROUP: Final = "redrive"
SOURCE: Final = "/redrive/evidence"
PUBLISH_CONCURRENCY: Final = 100
CONSUMERS: Final[Mapping[str, str]] = {
    ATTACH_REQUESTS: "evidence.attach",
    FAILED_REQUESTS: "evidence.retry",
    ATTACH_RESULTS: "evidence.results",
}
"""The consumer of each topic; what it cannot process goes to the destination of its name."""


class Bus(Protocol):
    def transport(self, topic: str, /) -> Any:
        """A transport of `redrive.transports`."""

    def source(self, topic: str, /) -> Callable[[], Any]:
        """Makes a source of `redrive.sources`, in the worker."""


@dataclass(frozen=True, kw_only=True)
class NatsBus:
    """url: one or several servers. ack_wait_seconds: after it the server delivers again what was not acknowledged."""

    url: str | Sequence[str] = field(repr=False)
    stream: str = STREAM
    ack_wait_seconds: float = 60.0
    credentials: str | None = None

    def transport(self, topic: str) -> Any:
        from redrive.transports.nats import CloudEvents, NatsTransport

        return NatsTransport(
            self.url,
            subject=topic,
            stream=self.stream,
            cloudevents=CloudEvents(SOURCE),
            credentials=self.credentials,
        )

    def source(self, topic: str) -> Callable[[], Any]:
        def make() -> Any:
            from redrive.sources.nats import NatsSource

            return NatsSource(
                self.url,
                stream=self.stream,
                durable=CONSUMERS[topic].replace(".", "-"),
                subject=topic,
                ack_wait_seconds=self.ack_wait_seconds,
                credentials=self.credentials,
            )

        return make

    async def make_stream(self, *, replicas: int = 1) -> None:
        """The stream of all topics, in files; one that is there is left as it is."""
        from nats.aio.client import Client
        from nats.js.api import StorageType, StreamConfig
        from nats.js.errors import NotFoundError

        client = Client()
        servers = self.url if isinstance(self.url, str) else list(self.url)
        await client.connect(servers=servers, user_credentials=self.credentials)
        try:
            streams = client.jetstream()
            try:
                await streams.stream_info(self.stream)
            except NotFoundError:
                subjects = [*TOPICS, *CATEGORY_TOPICS.values()]
                config = StreamConfig(
                    name=self.stream, subjects=subjects, storage=StorageType.FILE, num_replicas=replicas
                )
                await streams.add_stream(config)
        finally:
            await client.close()


@dataclass(frozen=True, kw_only=True)
class KafkaBus:
    """The topics exist. group: each topic's group is called `GROUP.CONSUMER`. config: options of librdkafka for
    producers and consumers, such as `security.protocol`. consumer_config: for consumers only.
    """

    bootstrap_servers: str
    group: str = GROUP
    config: Mapping[str, Any] = field(default_factory=dict, repr=False)
    consumer_config: Mapping[str, Any] = field(default_factory=dict)

    def transport(self, topic: str) -> Any:
        from redrive.transports.kafka import CloudEvents, KafkaTransport

        return KafkaTransport(
            self.bootstrap_servers, topic=topic, cloudevents=CloudEvents(SOURCE), config=dict(self.config)
        )

    def source(self, topic: str) -> Callable[[], Any]:
        def make() -> Any:
            from redrive.sources.kafka import KafkaSource

            group, config = f"{self.group}.{CONSUMERS[topic]}", {**self.config, **self.consumer_config}
            return KafkaSource(self.bootstrap_servers, topics=topic, group=group, config=config)

        return make


def topic_destinations(bus: Bus, *, topics_by_category: bool = False) -> list[Destination]:
    """What relays publish."""
    topics = [*TOPICS, *(CATEGORY_TOPICS.values() if topics_by_category else ())]
    declared = App()
    for topic in topics:
        declared.transport(
            topic, bus.transport(topic), concurrency=PUBLISH_CONCURRENCY, breaker=Breaker(), on_dead="continue"
        )
    return [*declared.destinations.values()]


def topic_consumers(bus: Bus, settings: EvidenceSettings, *, topics_by_category: bool = False) -> App:
    """An app with the consumer of each topic, and the destination of what it could not process."""
    handlers: Mapping[str, tuple[str, Handler]] = {
        ATTACH_REQUESTS: (ATTACH_REQUEST, requests_handler(ATTACH_REQUEST, settings)),
        FAILED_REQUESTS: (ATTACH_RETRY, requests_handler(ATTACH_RETRY, settings)),
        ATTACH_RESULTS: (ARTIFACT_RESULT, results_handler(settings, topics_by_category=topics_by_category)),
    }
    declared = App()
    for topic, (event_type, handler) in handlers.items():
        declared.consumer(CONSUMERS[topic], source=bus.source(topic), types={event_type})(handler)
    return declared
