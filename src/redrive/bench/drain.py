"""One relay process that drains: `python -m redrive.bench.drain`, its settings as JSON on standard input.

It says "started" when it has registered. When it has settled `count` messages it prints, by the monotonic clock:
its first claim, each handler's start if asked, and the settles that ended the first and began the last `edge`
messages.
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import redrive
from redrive.bench.bare import IN_FLIGHT
from redrive.bench.until import until
from redrive.events import Events
from redrive.policy import Settlement
from redrive.ports import Transport
from redrive.relay.process import RelayProcess, run_relay
from redrive.transports.cloudevents import CloudEvents


async def record(conn: Any, attempt: redrive.Attempt, _: Settlement) -> None:
    await conn.execute("INSERT INTO bench_record VALUES (%s)", [attempt.id])


class Seen:
    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.ended = asyncio.Event()
        self._count = int(settings["count"])
        self._edge = int(settings.get("edge", 0))
        self._settled = 0
        self._moments: dict[str, float] = {}
        self._handled: dict[str, float] = {}
        self.handler: Callable[[redrive.Attempt], Awaitable[None]] = self.note if settings.get("note") else self.read

    async def read(self, message: redrive.Attempt) -> None:
        _ = message.payload["text"]

    async def note(self, message: redrive.Attempt) -> None:
        self._handled[message.payload["text"]] = time.monotonic()

    def heard(self, name: str, values: Mapping[str, Any]) -> None:
        now = time.monotonic()
        if name == "relay.started":
            self._moments["started"] = now
            print("started", flush=True)
        elif name == "claim.stop":
            if values["count"]:
                self._moments.setdefault("claimed", now)
        else:
            self._settled += int(values["settled"])
            self._note_edges(now)

    def _note_edges(self, now: float) -> None:
        if self._settled >= self._edge:
            self._moments.setdefault("first_edge", now)
        if self._settled >= self._count - self._edge:
            self._moments.setdefault("last_edge", now)
        if self._settled >= self._count:
            self._moments.setdefault("ended", now)
            self.ended.set()

    def report(self) -> dict[str, Any]:
        return {**self._moments, "handled": self._handled}


def declare(app: redrive.App, name: str, settings: Mapping[str, Any]) -> Callable[[Any], Any]:
    """Some have a record or a rate, are down, or ask for a rest."""
    is_down = name in settings.get("down", ())
    declared = app.destination(
        name,
        record=record if name in settings.get("records", ()) else None,
        rate=settings.get("rates", {}).get(name),
        breaker=is_down,
    )
    if is_down:
        return lambda _: declared(refuse)
    return (lambda _: declared(ask_for_a_rest)) if name in settings.get("resting", ()) else declared


def transport_of(broker: Mapping[str, str]) -> Transport:
    url, place, cloudevents = broker["url"], broker["place"], CloudEvents("/bench")
    if broker["name"] == "nats":
        from redrive.transports.nats import NatsTransport

        return NatsTransport(url, subject=f"{place}.{{order_by}}", cloudevents=cloudevents)
    if broker["name"] == "rabbitmq":
        from redrive.transports.rabbitmq import RabbitTransport

        return RabbitTransport(url, routing_key=place, cloudevents=cloudevents)
    from redrive.transports.redis import RedisTransport

    return RedisTransport(url, stream=place, cloudevents=cloudevents)


async def refuse(_: redrive.Attempt) -> None:
    raise ConnectionRefusedError


async def ask_for_a_rest(_: redrive.Attempt) -> redrive.Retryable:
    return redrive.Retryable("HTTP_429", retry_after=300)


async def drain(settings: Mapping[str, Any]) -> dict[str, Any]:
    seen, events, app = Seen(settings), Events(), redrive.App()
    for name in settings["destinations"]:
        if "broker" in settings:
            app.transport(name, transport_of(settings["broker"]), concurrency=IN_FLIGHT)
        else:
            declare(app, name, settings)(seen.handler)
    events.subscribe(seen.heard, "relay.started", "claim.stop", "settle.stop")
    process = RelayProcess(app=app, dsn=settings["dsn"], name="bench", listen=settings.get("listen", True))
    relay = asyncio.create_task(run_relay(process, events=events, signals=False))
    await until(seen.ended, relay)
    return seen.report()


if __name__ == "__main__":
    print(json.dumps(asyncio.run(drain(json.loads(sys.stdin.readline())))))
