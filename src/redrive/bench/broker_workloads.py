"""W11 and W12: publishing to a broker and consuming from it, each beside the broker's own bare client."""

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from redrive.bench.database import checkpoint, execute, fill, fresh_database, one_row
from redrive.bench.workloads import (
    DRAIN,
    LostOrDoubled,
    Rates,
    Workload,
    child,
    relay_rate,
    report_of,
    require_all_delivered,
)
from redrive.kit.proof import brokers
from redrive.operate.embedded import nats_server

BARE, OURS = "bare client", "redrive"


def publish(broker: str, server: str, scale: float) -> Rates:
    """W11: a relay publishes 20,000 messages through the transport, 100 at a time without a confirm."""
    count = max(int(DRAIN * scale), 1000)
    with _running(broker) as url, fresh_database(server, "bench_w11") as dsn:
        fill(dsn, "ours", count)
        checkpoint(dsn)
        bare = _bare({"act": "publish", "broker": broker, "url": url, "place": "bare", "count": count})
        _bare({"act": "publish", "broker": broker, "url": url, "place": "ours", "count": 0})  # makes the place
        ours = relay_rate(dsn, ["ours"], count, broker={"name": broker, "url": url, "place": "ours"})
        require_all_delivered(dsn, count)
    return {BARE: bare, OURS: ours}


def consume(broker: str, server: str, scale: float) -> Rates:
    """W12: a worker consumes 20,000 events with the inbox and an INSERT each, by 10 connections."""
    count = max(int(DRAIN * scale), 1000)
    with _running(broker) as url, fresh_database(server, "bench_w12") as dsn:
        execute(dsn, "CREATE TABLE bench_effect (consumer text, id text)")
        of = {name: _filled(broker, url, name, count) for name in ("without", "bare", "ours")}
        without = _bare({**of["without"], "act": "consume"})
        checkpoint(dsn)
        bare = _bare({**of["bare"], "act": "consume", "dsn": dsn})
        checkpoint(dsn)
        ours = _rate("redrive.bench.consume", {**of["ours"], "dsn": dsn})
        for name in ("bare", "ours"):
            _require_each_once(dsn, name, count)
    return {BARE: bare, OURS: ours, "bare client without a database": without}


def _filled(broker: str, url: str, name: str, count: int) -> dict[str, Any]:
    """A place with the events of one consumer; the settings of that consumer."""
    settings = {"broker": broker, "url": url, "place": f"for-{name}", "name": name, "count": count}
    _bare({**settings, "act": "publish"})
    return settings


def _bare(settings: Mapping[str, Any]) -> float:
    return _rate("redrive.bench.bare", settings)


def _rate(module: str, settings: Mapping[str, Any]) -> float:
    with child(module, json.dumps(settings)) as running:
        seen = report_of(running)
    return float(settings["count"] / (seen["ended"] - seen["began"]))


def _require_each_once(dsn: str, name: str, count: int) -> None:
    rows, ids = one_row(
        dsn,
        f"SELECT count(*), count(DISTINCT id) FROM bench_effect WHERE consumer = '{name}'",  # noqa: S608 - our own
    )
    if (rows, ids) != (count, count):
        raise LostOrDoubled(f"{name}: {count} expected; {rows=} {ids=}")


@contextmanager
def _running(broker: str) -> Iterator[str]:
    """Its URL. What it confirms is on its disk: each of them syncs every message."""
    with tempfile.TemporaryDirectory(prefix="redrive-bench-", ignore_cleanup_errors=True) as home:
        if broker == "nats":
            with nats_server.start(Path(home) / "nats") as server:
                yield server.url
            return
        other: Any = brokers.kind(broker).server(Path(home))
        other.start()
        try:
            yield other.url
        finally:
            other.stop()


def _require(broker: str) -> None:
    """Raises what is to be installed."""
    if broker == "nats":
        nats_server.find()
    else:
        brokers.kind(broker)


def _workload(broker: str, title: str, *, act: str, aim: float) -> Workload:
    name, measure = {"publish": ("W11", publish), "consume": ("W12", consume)}[act]
    return Workload(
        f"{name}{broker}", title, OURS, BARE, aim, partial(measure, broker), require=partial(_require, broker)
    )


BROKER_WORKLOADS: Sequence[Workload] = (
    _workload("nats", "publish 20,000 to NATS", act="publish", aim=0.5),
    _workload("redis", "publish 20,000 to Redis", act="publish", aim=0.5),
    _workload("rabbitmq", "publish 20,000 to RabbitMQ", act="publish", aim=0.5),
    _workload("nats", "consume 20,000 from NATS with the inbox", act="consume", aim=0.5),
    _workload("redis", "consume 20,000 from Redis with the inbox", act="consume", aim=0.5),
    _workload("rabbitmq", "consume 20,000 from RabbitMQ with the inbox", act="consume", aim=0.5),
)
