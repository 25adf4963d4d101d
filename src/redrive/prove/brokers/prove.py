"""`redrive prove brokers`: the campaign with each broker, on one PostgreSQL with two databases, and the verdict."""

import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from redrive.errors import SettingsError
from redrive.kit.proof import brokers as kit
from redrive.kit.proof.brokers.proxy import Proxy
from redrive.kit.proof.database import open_another_database, open_proof_database
from redrive.kit.proof.directories import open_directory
from redrive.kit.proof.loop_thread import loop_thread
from redrive.prove.brokers import config
from redrive.prove.brokers.campaign import Campaign
from redrive.prove.brokers.judge import judged
from redrive.prove.brokers.plan import Plan
from redrive.prove.brokers.report import BrokersReport
from redrive.prove.brokers.services import ConsumerService, Publisher

PUBLISHER_APP: Final = "redrive.prove.brokers.publisher:app"
CONSUMER_APP: Final = "redrive.prove.brokers.consumer:app"


class Shown(NamedTuple):
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


def prove(
    *,
    seed: int,
    scale: float,
    dsn: str | None,
    brokers: Sequence[str],
    consumer_app: str = CONSUMER_APP,
    **options: Any,
) -> BrokersReport:
    """consumer_app: what worker and relay of the consuming service run. options: of `Campaign`."""
    began = time.monotonic()
    with open_directory() as directory, open_proof_database(directory, dsn) as database:
        shown: dict[str, Shown] = {}
        for name in brokers:
            with (
                _running(name, directory / name) as server,
                _open_services(name, server, directory / name, database.dsn, consumer_app) as services,
            ):
                plan = Plan.of(seed=seed, scale=scale, survives=server.survives)
                shown[name] = _shown(name, Campaign(plan=plan, server=server, **services, **options))
    return BrokersReport(
        seed=seed,
        scale=scale,
        server=database.server,
        seconds=time.monotonic() - began,
        counts={"messages": sum(one.counts["committed"] for one in shown.values())},
        violations=[sentence for one in shown.values() for sentence in one.violations],
        brokers={name: one.counts for name, one in shown.items()},
        faults={name: one.faults for name, one in shown.items()},
    )


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
    name: str, server: kit.Server, directory: Path, dsn: str, consumer_app: str
) -> Iterator[dict[str, Any]]:
    """As `Campaign` takes them."""
    proxy = Proxy(server.port)
    proxy.rewrite = lambda said: server.rewrite(said, proxy.port)
    with (
        open_another_database(dsn) as first,
        open_another_database(dsn) as second,
        loop_thread(proxy) as loop,
        Publisher(directory / "publisher", first, app=PUBLISHER_APP, broker=name, port=proxy.port) as publisher,
        ConsumerService(directory / "consumer", second, app=consumer_app, broker=name, port=proxy.port) as consumer,
    ):
        publisher.prepare()
        consumer.prepare()
        yield {"proxy": proxy, "loop": loop, "publisher": publisher, "consumer": consumer}


def _shown(name: str, campaign: Campaign) -> Shown:
    campaign.run()
    evidence = campaign.evidence()
    violations = [*campaign.complaints(), *judged(evidence)]
    return Shown(
        counts=campaign.counts(evidence),
        faults=dict(campaign.faults),
        violations=[f"{name}: {sentence}" for sentence in violations],
    )
