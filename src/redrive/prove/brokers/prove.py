"""`redrive prove brokers`: the campaign with each broker, on one PostgreSQL with two databases, and the verdict."""

import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from redrive.errors import SettingsError
from redrive.kit.proof import brokers as kit
from redrive.kit.proof.brokers.proxy import Proxy
from redrive.kit.proof.database import open_another_database, open_proof_database
from redrive.kit.proof.directories import open_directory
from redrive.kit.proof.loop_thread import LoopThread, loop_thread
from redrive.kit.proof.report import Progress
from redrive.prove.brokers import config
from redrive.prove.brokers.campaign import IDLE_SECONDS, Campaign
from redrive.prove.brokers.judge import judged
from redrive.prove.brokers.plan import Plan
from redrive.prove.brokers.report import BrokersReport
from redrive.prove.brokers.services import ConsumerService, Publisher

PUBLISHER_APP: Final = "redrive.prove.brokers.publisher:app"
CONSUMER_APP: Final = "redrive.prove.brokers.consumer:app"


@dataclass(frozen=True, kw_only=True)
class Terms:
    """consumer_app: what worker and relay of the consuming service run. quiet_seconds: of `Campaign`."""

    seed: int
    scale: float
    progress: Progress
    consumer_app: str = CONSUMER_APP
    quiet_seconds: float = IDLE_SECONDS


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What one broker has shown."""

    counts: dict[str, int]
    faults: dict[str, int]
    violations: Sequence[str]


def runnable(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Of these brokers, those that can run here, and for each other one why not."""
    found: list[str] = []
    left_out: list[str] = []
    for name in dict.fromkeys(names):
        try:
            kit.kind(name)
            found.append(name)
        except SettingsError as why:
            left_out.append(str(why))
    return found, left_out


def prove(*, dsn: str | None, brokers: Sequence[str], **terms: Any) -> BrokersReport:
    """terms: of `Terms`."""
    given = Terms(**terms)
    began = time.monotonic()
    with open_directory() as directory, open_proof_database(directory, dsn) as database:
        shown = {name: _with_broker(name, directory / name, database.dsn, given) for name in brokers}
    return BrokersReport(
        seed=given.seed,
        scale=given.scale,
        server=database.server,
        seconds=time.monotonic() - began,
        counts={"messages": sum(one.counts["committed"] for one in shown.values())},
        violations=[sentence for one in shown.values() for sentence in one.violations],
        brokers={name: one.counts for name, one in shown.items()},
        faults={name: one.faults for name, one in shown.items()},
    )


def _with_broker(name: str, directory: Path, dsn: str, terms: Terms) -> Shown:
    with (
        _running(name, directory) as server,
        _open_services(name, server, directory, dsn, terms) as (proxy, loop, publisher, consumer),
    ):
        campaign = Campaign(
            Plan.of(seed=terms.seed, scale=terms.scale, survives=server.survives),
            server=server,
            proxy=proxy,
            loop=loop,
            publisher=publisher,
            consumer=consumer,
            progress=terms.progress,
            quiet_seconds=terms.quiet_seconds,
        )
        campaign.run()
        return _shown(name, campaign)


@contextmanager
def _running(name: str, directory: Path) -> Iterator[kit.Server]:
    data = directory / "data"
    data.mkdir(parents=True)
    server = kit.kind(name).server(data)
    try:
        server.start()
        server.prepare(config.PLACE)
        yield server
    finally:
        server.stop(signal.SIGKILL)


@contextmanager
def _open_services(
    name: str, server: kit.Server, directory: Path, dsn: str, terms: Terms
) -> Iterator[tuple[Proxy, LoopThread, Publisher, ConsumerService]]:
    proxy = Proxy(server.port)
    proxy.rewrite = lambda said: server.rewrite(said, proxy.port)
    with (
        open_another_database(dsn) as first,
        open_another_database(dsn) as second,
        loop_thread(proxy) as loop,
        Publisher(directory / "publisher", first, app=PUBLISHER_APP, broker=name, port=proxy.port) as publisher,
        ConsumerService(
            directory / "consumer", second, app=terms.consumer_app, broker=name, port=proxy.port
        ) as consumer,
    ):
        publisher.prepare()
        consumer.prepare()
        yield proxy, loop, publisher, consumer


def _shown(name: str, campaign: Campaign) -> Shown:
    evidence = campaign.evidence()
    violations = [*campaign.complaints(), *judged(evidence)]
    return Shown(
        counts=campaign.counts(evidence),
        faults=dict(campaign.faults),
        violations=[f"{name}: {sentence}" for sentence in violations],
    )
