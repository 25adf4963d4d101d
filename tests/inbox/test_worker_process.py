"""A real `redrive worker` on a real Valkey: its health over HTTP, and events that fail beside events that do not."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import psycopg
import pytest

from tests.cli.conftest import Redrive
from tests.inbox.processes import SECONDS, running
from tests.support.waiting import wait_until
from tests.transports.brokers.redis_broker import RedisBroker
from tests.transports.brokers.subjects import started

pytestmark = [pytest.mark.req("G-23"), pytest.mark.timeout(600)]

APP = """
import os
import threading

from redrive import App, Backoff, Policy
from redrive.sources.redis import RedisSource

app = App()
QUICKLY = Policy(attempts=2, backoff=Backoff(initial_seconds=0.01, max_seconds=0.01))
EFFECT = "INSERT INTO effect VALUES (%s, %s)"
MENDED = "SELECT count(*) FROM mended"


def stream(name):
    return lambda: RedisSource(os.environ["REDIS_URL"], stream=name, group=name)


@app.consumer("billing", source=stream("billing"), types=os.environ["TYPES"].split(), order="subject", policy=QUICKLY)
async def billing(conn, event):
    await conn.execute(EFFECT, ["billing", event.id])


@app.consumer("failing", source=stream("failing"), policy=QUICKLY)
async def failing(conn, event):
    await conn.execute(EFFECT, ["failing", event.id])
    if await (await conn.execute(MENDED)).fetchone() == (0,):
        raise RuntimeError("it always fails")


@app.consumer("hanging", source=stream("hanging"), policy=QUICKLY, timeout_seconds=float(os.environ["HANGS"]))
def hanging(conn, event):
    conn.execute(EFFECT, ["hanging", event.id])
    if conn.execute(MENDED).fetchone() == (0,):
        threading.Event().wait()
"""
GOOD, BAD = 40, 3
WHY = ("--reason", "INC-7", "--yes")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RedisBroker]:
    with started(RedisBroker(tmp_path)) as process:
        yield process


@pytest.fixture
def conn(database: str, tmp_path: Path) -> Iterator[psycopg.Connection[Any]]:
    (tmp_path / "shop_consumers.py").write_text(APP, encoding="utf-8")
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE effect (consumer text, event text); CREATE TABLE mended (at timestamptz)")
        yield connection


def publish(broker: RedisBroker, consumer: str, id_: str, *, kind: str = "placed", subject: str = "") -> None:
    event = {"specversion": "1.0", "id": id_, "source": "/shop", "type": kind, "subject": subject}
    with broker.client() as client:
        client.xadd(consumer, {**{f"ce-{name}": value for name, value in event.items() if value}, "data": b"{}"})


def publish_poison(broker: RedisBroker) -> None:
    """It says that it is a CloudEvent, and has no type."""
    event = {"specversion": "1.0", "id": "poison", "source": "/shop", "data": {}}
    with broker.client() as client:
        client.xadd("billing", {"content-type": "application/cloudevents+json", "data": json.dumps(event)})


def rows(conn: psycopg.Connection[Any], query: str) -> Counter[Any]:
    return Counter(dict(conn.execute(query.encode()).fetchall()))


def effects(conn: psycopg.Connection[Any]) -> Counter[str]:
    return rows(conn, "SELECT consumer, count(*) FROM effect GROUP BY 1")


def received(conn: psycopg.Connection[Any]) -> Counter[str]:
    return rows(conn, "SELECT consumer || ' ' || outcome, count(*) FROM redrive.inbox GROUP BY 1")


def answer(url: str) -> tuple[int, str]:
    try:
        with urlopen(url, timeout=SECONDS) as reply:
            return reply.status, reply.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()
    except URLError:
        return 0, ""


def until(condition: Any, what: str) -> None:
    wait_until(condition, seconds=SECONDS, what=what)


def test_a_worker_is_ready_until_its_broker_stops_and_ends_with_0(
    broker: RedisBroker, conn: psycopg.Connection[Any], database: str, tmp_path: Path
) -> None:
    redrive = Redrive(database)
    words = ("worker", "shop_consumers:app", "--consumer", "billing", "--metrics-listen", "0", "--name", "worker-7")
    with running(tmp_path, database, *words, REDIS_URL=broker.url, TYPES="placed", HANGS="60") as worker:
        url = worker.url
        until(lambda: answer(f"{url}/readyz")[0] == 200, "ready")
        assert 'redrive_consumer_received_total{consumer="billing"} 0.0' in answer(f"{url}/metrics")[1]
        assert redrive("health", "--url", url).stdout == "healthy\n"
        publish(broker, "billing", "e-1")
        until(lambda: effects(conn) == {"billing": 1}, "the effect")
        until(lambda: _report(redrive)["processed"] == 1, "the report")
        assert _report(redrive)["is_connected"]
        broker.stop()
        until(lambda: answer(f"{url}/readyz")[0] == 503, "not ready")
        assert "[-]sources failed: not connected to the source of: billing" in answer(f"{url}/readyz")[1]
        assert answer(f"{url}/livez")[0] == 200
        asked = redrive("health", "--url", url)
        assert (asked.exit_code, asked.stdout) == (6, "unhealthy\n  not connected to the source of: billing\n")
        until(lambda: not _report(redrive)["is_connected"], "the report")
        assert "source_away" in {finding["code"] for finding in redrive.json("status")["findings"]}
        broker.start()
        until(lambda: answer(f"{url}/readyz")[0] == 200, "ready again")
        assert worker.stop() == 0, worker.log
    assert redrive.json("status")["workers"] == []
    gone = redrive("health", "--url", url)
    assert (gone.exit_code, "Neither a relay nor a worker answers" in gone.stderr) == (7, True)


def _report(redrive: Redrive) -> Any:
    (worker,) = redrive.json("status")["workers"]
    assert worker["name"] == "worker-7"
    (report,) = worker["consumers"]
    return report


def test_events_that_fail_or_hang_disturb_no_other_and_have_their_effect_after_a_replay(
    broker: RedisBroker, conn: psycopg.Connection[Any], database: str, tmp_path: Path
) -> None:
    redrive = Redrive(database)
    environment = {"REDIS_URL": broker.url, "TYPES": "placed", "HANGS": "600"}
    for n in range(BAD):
        publish(broker, "failing", f"f-{n}")
        publish(broker, "hanging", f"h-{n}")
    with running(tmp_path, database, "worker", "shop_consumers:app", "--stop-seconds", "1", **environment) as worker:
        _publish_good_and_bad(broker)
        until(lambda: effects(conn)["billing"] == GOOD, "the neighbours")
        until(lambda: received(conn)["failing deferred"] == BAD, "what failed")
        until(lambda: received(conn)["billing deferred"] == 2, "what cannot be processed")
        assert received(conn) == {"billing processed": GOOD, "billing deferred": 2, "failing deferred": BAD}
        assert worker.stop() == 0, worker.log  # although three handlers hang: their events go back
    environment |= {"HANGS": "1"}
    with running(tmp_path, database, "worker", "shop_consumers:app", **environment) as worker:
        until(lambda: received(conn)["hanging deferred"] == BAD, "what hung")
        until(lambda: _unacknowledged(broker) == 0, "acknowledgements")
        assert worker.stop() == 0, worker.log
    assert effects(conn) == {"billing": GOOD}
    with running(tmp_path, database, "relay", "shop_consumers:app", **environment) as relay:
        until(lambda: len(redrive.json("dead", "list")["items"]) == 2 + 2 * BAD, "dead letters")
        until(lambda: len(redrive.json("groups", "list")["items"]) == 4, "their causes")
        assert relay.stop() == 0, relay.log
    _see_and_repair(redrive, conn)
    environment |= {"TYPES": "placed lost"}
    with running(tmp_path, database, "relay", "shop_consumers:app", **environment) as relay:
        for name in ("billing", "failing", "hanging"):
            made = redrive("replay", "create", name, "--destination", name, "--override", *WHY)
            assert made.exit_code == 0, made.stderr
        until(lambda: effects(conn) == {"billing": GOOD + 2, "failing": BAD, "hanging": BAD}, "the effects")
        until(lambda: redrive.json("dead", "list")["items"] == [], "nothing left")
        assert relay.stop() == 0, relay.log
    assert rows(conn, "SELECT event, count(*) FROM effect GROUP BY 1").most_common(1)[0][1] == 1  # each once


def _publish_good_and_bad(broker: RedisBroker) -> None:
    for n in range(GOOD):
        publish(broker, "billing", f"e-{n}", subject=f"k{n % 8}")
        if n == GOOD // 3:
            publish_poison(broker)
        if n == GOOD // 2:
            publish(broker, "billing", "lost", kind="lost", subject="alone")


def _unacknowledged(broker: RedisBroker) -> int:
    with broker.client() as client:
        return sum(client.xpending(name, name)["pending"] for name in ("billing", "failing", "hanging"))


def _see_and_repair(redrive: Redrive, conn: psycopg.Connection[Any]) -> None:
    dead = redrive.json("dead", "list")["items"]
    assert Counter((one["destination"], one["error_class"]) for one in dead) == {
        ("billing", "MALFORMED_EVENT"): 1,
        ("billing", "UNKNOWN_TYPE"): 1,
        ("failing", "CONSUMER_FAILED"): BAD,
        ("hanging", "CONSUMER_TIMEOUT"): BAD,
    }
    (poison,) = (one["id"] for one in dead if one["error_class"] == "MALFORMED_EVENT")
    patch = json.dumps([{"op": "add", "path": "/type", "value": "placed"}])
    for act in (("triage", poison, "--cause", "data"), ("edit", poison, "--patch", patch)):
        done = redrive("dead", *act, "--reason", "INC-7")
        assert done.exit_code == 0, done.stderr
    conn.execute("INSERT INTO mended VALUES (now())")
