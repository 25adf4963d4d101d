"""`redrive doctor MODULE:APP` asks real brokers for the settings that the guarantees need."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from nats.js.api import StorageType, StreamConfig

from redrive.app import App
from redrive.operate.doctor import Point, Verdict
from redrive.operate.doctor_brokers import examine_brokers
from redrive.operate.embedded.processes import free_port
from redrive.sources.nats import NatsSource
from redrive.sources.redis import RedisSource
from redrive.testing import ScriptedSource
from redrive.transports.broker_risks import UNKNOWN, redis_risks
from redrive.transports.nats import NatsTransport
from redrive.transports.redis import RedisTransport
from tests.cli.conftest import Redrive
from tests.transports.brokers.nats_broker import NatsBroker
from tests.transports.brokers.redis_broker import RedisBroker
from tests.transports.brokers.subjects import started

pytestmark = pytest.mark.req("G-23")
DAY = 86_400.0


async def nothing(conn: Any, event: Any) -> None:
    """A handler that is never called."""


async def point(app: App, *, days: float | None = 30) -> Point:
    (found,) = await examine_brokers(app, inbox_seconds=None if days is None else days * DAY)
    return found


async def test_a_stream_of_nats_is_looked_at_by_its_source_and_its_transport(tmp_path: Path) -> None:
    with started(NatsBroker(tmp_path)) as broker:
        _stream(broker, "WEAK", storage=StorageType.MEMORY, max_age=40 * DAY)
        _stream(broker, "ORDERS", storage=StorageType.FILE, max_age=7 * DAY)
        app = App()
        app.consumer("billing", source=lambda: NatsSource(broker.url, stream="WEAK", durable="billing"))(nothing)
        weak = await point(app)
        assert (weak.name, weak.verdict) == ("source of billing", Verdict.WARN)
        assert all(words in weak.detail for words in ("is in memory", "has 1 replica", "for 40 days", "for 30 days"))
        assert "storage = file" in weak.next
        assert "days" not in (await point(app, days=None)).detail  # the inbox remembers for good
        app = App()
        app.transport("events", NatsTransport(broker.url, subject="ORDERS.x", stream="ORDERS"))
        assert (await point(app)).detail == "the stream ORDERS has 1 replica: the loss of a server may lose it"
        app = App()
        app.transport("events", NatsTransport(broker.url, subject="ORDERS.x"))
        assert "names no stream" in (await point(app)).detail
        app = App()
        app.consumer("billing", source=lambda: NatsSource(broker.url, stream="NONE", durable="billing"))(nothing)
        assert (await point(app)).detail == "it does not answer: nats.js.errors.NotFoundError"


def _stream(broker: NatsBroker, name: str, **options: Any) -> None:
    broker.ask(lambda js: js.add_stream(StreamConfig(name=name, subjects=[f"{name}.>"], **options)))


async def test_settings_of_redis_are_looked_at_by_the_source_and_the_transport(tmp_path: Path) -> None:
    with started(RedisBroker(tmp_path)) as broker:
        app = App()
        app.consumer("billing", source=lambda: RedisSource(broker.url, stream="orders", group="billing"))(nothing)
        assert await point(app) == Point(
            name="source of billing", verdict=Verdict.OK, detail="its settings keep what it has confirmed"
        )
        with broker.client() as client:
            client.config_set("appendfsync", "everysec")
            client.config_set("maxmemory-policy", "allkeys-lru")
        found = await point(app)
        assert found.verdict is Verdict.WARN
        assert all(words in found.detail for words in ("appendfsync is everysec", "maxmemory-policy is allkeys-lru"))
        with broker.client() as client:
            assert client.keys("*") == []  # nothing was made there
            client.config_set("appendonly", "no")
            client.acl_setuser("app", enabled=True, nopass=True, commands=["+@all", "-config"], keys=["*"])
        app = App()
        app.transport("events", RedisTransport(broker.url, stream="orders"))
        assert "appendonly is off" in (await point(app)).detail
        app = App()
        app.transport("events", RedisTransport(broker.url.replace("//", "//app:x@"), stream="orders"))
        assert (await point(app)).detail == UNKNOWN.detail
    assert (await point(app)).verdict is Verdict.FAIL


async def test_what_cannot_say_anything_is_left_out() -> None:
    app = App()
    app.consumer("billing", source=ScriptedSource())(nothing)
    assert await examine_brokers(app, inbox_seconds=None) == []
    assert list(redis_risks({})) == [UNKNOWN]


def test_the_doctor_asks_the_brokers_of_an_app(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "risky_shop.py").write_text(
        "from redrive import App\nfrom redrive.sources.redis import RedisSource\napp = App()\n"
        f"source = RedisSource('redis://127.0.0.1:{free_port()}', stream='o', group='g')\n"
        "@app.consumer('billing', source=lambda: source)\n"
        "async def billing(conn, event): ...\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    points = Redrive(database).json("doctor", "risky_shop:app", exit_code=6)["points"]
    assert (points[-1]["name"], points[-1]["verdict"]) == ("source of billing", "fail")
    assert "source of billing" not in {one["name"] for one in Redrive(database).json("doctor")["points"]}
