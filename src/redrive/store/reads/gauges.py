"""Values for monitoring, read by the relay that holds the duty `gauges` (G-17, G-20). SQL: verbs/gauges.sql."""

from typing import Final, NamedTuple

from redrive.message import WorkerId
from redrive.ports import duty_hold_seconds
from redrive.store.reads.models import COUNTED_MAX, LIVE_SECONDS
from redrive.store.runtime import wire
from redrive.store.runtime.postgres import PostgresStore

DUTY: Final = "gauges"


class Gauge(NamedTuple):
    """subject: a destination, consumer, duty or table, or empty. reason: of what is parked, or empty."""

    name: str
    subject: str
    reason: str
    value: float


async def read_gauges(store: PostgresStore, *, most: int = COUNTED_MAX) -> list[Gauge]:
    return wire.objects(Gauge, await store.call("gauges_1", LIVE_SECONDS, most))


async def hold_duty(store: PostgresStore, name: str, worker: WorkerId, *, every_seconds: float) -> bool:
    return bool(await store.value("hold_duty_1", name, worker, every_seconds, duty_hold_seconds(every_seconds)))
