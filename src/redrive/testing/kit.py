"""For the tests of your own application: what was enqueued, and delivering it inside the test's transaction.

    redrive.testing.assert_enqueued(conn, "mail", {"order": 1})
    redrive.testing.drain(conn, app)

Neither commits. Both see what the transaction of `conn` has enqueued, and what was committed before.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, LiteralString, NamedTuple
from uuid import uuid4

from redrive.app import App
from redrive.events import Events
from redrive.message import MessageId, WorkerId
from redrive.ports import RelayInfo
from redrive.produce import drivers
from redrive.produce.steps import Steps
from redrive.relay.limits import RelayLimits
from redrive.relay.loop import Relay
from redrive.relay.run import SystemClock
from redrive.store.one_connection import StoreOnConnection

DRAIN_SECONDS: Final = 30.0
_MESSAGES: Final[LiteralString] = (
    "SELECT m.id, m.destination, m.body, m.key, m.tenant, m.kind, m.order_by, m.content_type"
    " FROM redrive.message m WHERE m.destination = %s::text ORDER BY m.id"
)
# Whether a relay that handles these destinations would have something to do now.
HAS_WORK: Final[LiteralString] = """
    SELECT EXISTS (SELECT 1 FROM redrive.lease)
        OR EXISTS (SELECT 1 FROM redrive.pending p WHERE p.due_at <= clock_timestamp() AND p.destination = ANY (%s)
                      AND redrive.is_open(p.destination, clock_timestamp())
                      AND (p.lane IS NULL
                           OR EXISTS (SELECT 1 FROM redrive.lane_head(p.lane, clock_timestamp()) h WHERE h.id = p.id)))
"""


class Enqueued(NamedTuple):
    """A message as it was handed in. payload: read as JSON where it is, else the bytes."""

    id: MessageId
    destination: str
    payload: Any
    key: str | None
    tenant: str
    kind: str
    order_by: str | None


@dataclass
class Drained:
    """What became of the messages that a drain has touched, by id, in order."""

    delivered: list[MessageId] = field(default_factory=list)
    retried: list[MessageId] = field(default_factory=list)
    parked: list[MessageId] = field(default_factory=list)


def enqueued(conn: Any, destination: str) -> list[Enqueued]:
    """Every message for a destination, oldest first."""
    return drivers.run(conn, _enqueued(destination))


async def aenqueued(conn: Any, destination: str) -> list[Enqueued]:
    """`enqueued` for an asynchronous connection."""
    return await drivers.arun(conn, _enqueued(destination))


def assert_enqueued(conn: Any, destination: str, payload: Any = ..., *, count: int = 1, **values: Any) -> None:
    """Exactly so many messages for a destination have this payload and these values (key, tenant, kind, order_by)."""
    _check(enqueued(conn, destination), destination, payload, count, values)


async def aassert_enqueued(conn: Any, destination: str, payload: Any = ..., *, count: int = 1, **values: Any) -> None:
    """`assert_enqueued` for an asynchronous connection."""
    _check(await aenqueued(conn, destination), destination, payload, count, values)


def drain(conn: Any, app: App) -> Drained:
    """Deliver all that is due, in the transaction that is open on `conn`, by the handlers of `app`.

    What is to be tried again later stays pending. Your handlers run for real.
    """
    result: list[Drained | BaseException] = []

    def run() -> None:
        try:
            result.append(asyncio.run(adrain(conn, app)))
        except BaseException as error:
            result.append(error)

    thread = threading.Thread(target=run)  # the caller may be inside an event loop
    thread.start()
    thread.join()
    if isinstance(result[0], BaseException):
        raise result[0]
    return result[0]


async def adrain(conn: Any, app: App) -> Drained:
    """`drain` for an asynchronous connection."""
    store, events, drained = StoreOnConnection(conn), Events(), Drained()
    idle = asyncio.Event()
    events.subscribe(lambda *_: idle.set(), "relay.idle")
    for name, ids in (
        ("message.delivered", drained.delivered),
        ("message.retried", drained.retried),
        ("message.parked", drained.parked),
    ):
        events.subscribe(_noting(ids), name)
    relay = Relay(
        store,
        app.destinations,
        info=_info(app),
        limits=RelayLimits(poll_seconds=0.05),
        clock=SystemClock(),
        random=Random(),
        events=events,
    )
    running = asyncio.create_task(relay.run())
    try:
        async with asyncio.timeout(DRAIN_SECONDS):
            while (await store.rows(HAS_WORK, [list(app.destinations)]))[0][0] and not running.done():
                idle.clear()
                waiting = asyncio.create_task(idle.wait())
                await asyncio.wait([waiting, running], timeout=0.05, return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
    finally:
        relay.stop()
        await running
    return drained


def _noting(ids: list[MessageId]) -> Any:
    def note(_: str, values: Mapping[str, Any]) -> None:
        ids.append(values["id"])

    return note


def _info(app: App) -> RelayInfo:
    return RelayInfo(
        worker=WorkerId(uuid4()), name="test", host="", pid=0, version="", destinations=list(app.destinations)
    )


def _enqueued(destination: str) -> Steps[list[Enqueued]]:
    rows = yield _MESSAGES, (destination,)
    return [_read(*row) for row in rows]


def _read(
    id: Any,
    destination: str,
    body: Any,
    key: str | None,
    tenant: str,
    kind: str,
    order_by: str | None,
    content_type: str,
) -> Enqueued:
    payload = json.loads(bytes(body)) if content_type == "application/json" else bytes(body)
    return Enqueued(id, destination, payload, key, tenant, kind, order_by)


def _check(found: Sequence[Enqueued], destination: str, payload: Any, count: int, values: Mapping[str, Any]) -> None:
    fitting = [one for one in found if _fits(one, payload, values)]
    if len(fitting) == count:
        return
    wanted = {**({} if payload is ... else {"payload": payload}), **values}
    listed = "\n".join(f"  {one}" for one in found) or "  none"
    raise AssertionError(
        f"{len(fitting)} messages for {destination!r} with {wanted}, not {count}. There are:\n{listed}"
    )


def _fits(one: Enqueued, payload: Any, values: Mapping[str, Any]) -> bool:
    unknown = set(values) - set(Enqueued._fields)
    if unknown:
        raise TypeError(f"{sorted(unknown)} cannot be asked for; these can: {', '.join(Enqueued._fields)}.")
    return (payload is ... or one.payload == payload) and all(
        getattr(one, name) == value for name, value in values.items()
    )
