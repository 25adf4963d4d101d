"""Which settings of a broker may lose what it has confirmed, or bring it again too late. Pure; the transport or the
source of each broker asks for the settings."""

from collections.abc import Iterator, Mapping
from typing import Final

from redrive.ports.broker_risks import BrokerRisk

REPLICAS_MIN: Final = 3
REDIS_SETTINGS: Final = ("appendonly", "appendfsync", "maxmemory-policy")
UNKNOWN: Final = BrokerRisk(
    "the server does not tell its settings (CONFIG is not allowed)",
    "look at appendonly, appendfsync and maxmemory-policy where it is run",
)
UNNAMED_STREAM: Final = BrokerRisk(
    "the destination names no stream, so that none can be looked at, and any stream may take its messages",
    'stream="…" of the NatsTransport',
)


def nats_risks(
    stream: str, *, in_files: bool, replicas: int, age_seconds: float | None, inbox_seconds: float | None
) -> Iterator[BrokerRisk]:
    """age_seconds: how long the stream keeps messages; None = for good. inbox_seconds: None = nothing to compare."""
    if not in_files:
        yield BrokerRisk(
            f"the stream {stream} is in memory: a restart of the server loses it", "make it anew with storage = file"
        )
    if replicas < REPLICAS_MIN:
        count = "1 replica" if replicas == 1 else f"{replicas} replicas"
        yield BrokerRisk(
            f"the stream {stream} has {count}: the loss of a server may lose it",
            f"num_replicas = {REPLICAS_MIN}, on a cluster",
        )
    if inbox_seconds is not None and (age_seconds is None or age_seconds > inbox_seconds):
        kept = "for good" if age_seconds is None else f"for {age_seconds / 86_400:g} days"
        yield BrokerRisk(
            f"the stream {stream} keeps messages {kept}, the inbox remembers them for {inbox_seconds / 86_400:g} days:"
            " what comes again after that is processed again",
            "a max_age below inbox_retention_days, or a longer inbox_retention_days",
        )


def redis_risks(settings: Mapping[str, str]) -> Iterator[BrokerRisk]:
    """settings: those of `REDIS_SETTINGS` that the server told."""
    if not settings:
        yield UNKNOWN
    if settings.get("appendonly", "yes") != "yes":
        yield BrokerRisk("appendonly is off: a restart of the server loses what it has confirmed", "appendonly yes")
    elif settings.get("appendfsync", "always") != "always":
        yield BrokerRisk(
            f"appendfsync is {settings['appendfsync']}: a crash of the machine loses what it confirmed last",
            "appendfsync always",
        )
    if settings.get("maxmemory-policy", "noeviction") != "noeviction":
        yield BrokerRisk(
            f"maxmemory-policy is {settings['maxmemory-policy']}: a full server deletes streams",
            "maxmemory-policy noeviction",
        )
