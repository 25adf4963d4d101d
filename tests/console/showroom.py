"""A database in which every screen of the console has something to show, made without a relay and within seconds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

import psycopg

from redrive.answers import Retryable, Terminal, Unknown
from redrive.message import MessageId, ParkReason, Priority
from redrive.operate.desk import replays, workflow
from redrive.operate.desk.causes import Cause
from redrive.operate.desk.groups import Marking, mark
from redrive.ports import ClaimRequest
from redrive.store.reads.desk import list_groups
from redrive.store.reads.models import GroupFilter
from redrive.store.runtime.postgres import PostgresStore
from redrive.who import Who
from tests.support import messages as m
from tests.support.workers import BILLING, INFO, OTHER

ADA: Final = Who(actor="ada", reason="INC-4711: since release 2.3")
DESTINATIONS: Final = ("crm", "erp", "mail", "partner", "sms", "warehouse")


@dataclass
class Showroom:
    """group: the one to repair. replay: one that runs. message: a dead letter with a history."""

    group: str
    repaired: str
    replay: UUID
    done: UUID
    message: MessageId
    delivered: MessageId
    held: MessageId


async def furnish(store: PostgresStore, dsn: str, *, minutes: int = 12, dead: int = 40) -> Showroom:
    """minutes: of traffic, up to 60. dead: letters of the largest group."""
    now = await store.now()
    delivered = await _traffic(store, now, minutes)
    hour = now - timedelta(minutes=38)
    invoices = await _dead(store, "erp", "invoice.created", "SCHEMA_INVALID", "currency is missing", dead, hour)
    await _dead(store, "crm", "order.placed", "HTTP_401", "the key is not known", dead // 3 + 1, hour)
    welcome = await _dead(
        store, "mail", "welcome", "HTTP_503", "try again later", dead // 5 + 1, now - timedelta(hours=3)
    )
    held = await _parked(store, "partner", ParkReason.HELD, now - timedelta(minutes=21), count=3)
    await _parked(store, "warehouse", ParkReason.UNRECORDED, now - timedelta(minutes=9), count=2)
    await _retrying(store, now)
    await _blocked_keys(store, now)
    await store.pause("partner", actor="grace", reason="maintenance until 18:00")
    _machinery(dsn)
    for worker in (INFO, OTHER):
        await store.heartbeat_worker(worker, [BILLING], now=now + timedelta(hours=1))
    erp, mail = [await _group_of(store, name) for name in ("erp", "mail")]
    await mark(store, erp, Marking(mark="assign", actor="grace", reason="on call", value="ada"))
    running = await _replay(store, mail, welcome)
    done = await _finished_replay(store, dsn, now)
    return Showroom(erp, mail, running, done, invoices[0], delivered, held[0])


async def _traffic(store: PostgresStore, now: datetime, minutes: int) -> MessageId:
    last: list[MessageId] = []
    for minute in range(minutes):
        at = now - timedelta(minutes=minutes - minute)
        for number in range(3 + (minute * 7) % 9):
            destination, kind = (("warehouse", "order.placed"), ("erp", "invoice.created"))[number % 2]
            body = {"order": minute * 100 + number, "currency": "EUR", "total": f"{number * 13}.90"}
            last.append(await m.enqueue(store, now=at, destination=destination, kind=kind, body=_json(body)))
        for attempt in await _claimed(store, at, ("warehouse", "erp")):
            outcome = m.outcome(attempt, m.close(), latency_ms=20 + attempt.id.int % 90)
            await store.settle(m.WORKER, [outcome], now=at + timedelta(seconds=1))
    return last[-1]


async def _claimed(store: PostgresStore, at: datetime, destinations: Sequence[str]) -> Sequence[Any]:
    claim_requests = [ClaimRequest(name, level.level, 1000) for name in destinations for level in Priority]
    return (await store.claim(m.WORKER, claim_requests, lease_seconds=m.LEASE_SECONDS, now=at)).attempts


async def _dead(
    store: PostgresStore, destination: str, kind: str, code: str, text: str, count: int, at: datetime
) -> list[MessageId]:
    ids = []
    for number in range(count):
        body = {
            "invoice": 4000 + number,
            "customer": f"c-{number * 7919 % 9973}",
            "amount": f"{number * 37 % 900 + 10}.90",
            "currency": None,
            "lines": [{"sku": "teapot", "count": 1 + number % 3}],
        }
        key = f"{kind.partition('.')[0]}:{4000 + number}"
        ids.append(await m.enqueue(store, now=at, destination=destination, kind=kind, key=key, body=_json(body)))
    settlement = m.park(ParkReason.DEAD, answer=Terminal(code), error_class=code)
    for turn, attempt in enumerate(await _claimed(store, at, [destination])):
        outcome = m.outcome(attempt, settlement, text=text, latency_ms=31)
        await store.settle(m.WORKER, [outcome], now=at + turn / count * timedelta(minutes=30))
    return ids


async def _parked(
    store: PostgresStore, destination: str, reason: ParkReason, at: datetime, *, count: int
) -> list[MessageId]:
    ids = [
        await m.enqueue(store, now=at, destination=destination, kind="shipment.booked", body=_json({"parcel": number}))
        for number in range(count)
    ]
    code, text = {
        ParkReason.HELD: ("READ_TIMEOUT", "the answer was lost"),
        ParkReason.UNRECORDED: ("RECORD_FAILED", "the column does not exist"),
    }[reason]
    settlement = m.park(reason, answer=Unknown(code), error_class=code)
    for attempt in await _claimed(store, at, [destination]):
        await store.settle(m.WORKER, [m.outcome(attempt, settlement, text=text)], now=at)
    return ids


async def _retrying(store: PostgresStore, now: datetime) -> None:
    """Delays that grow from failure to failure."""
    for number in range(4):
        await m.enqueue(store, now=now - timedelta(hours=2), destination="sms", kind="code", body=_json({"n": number}))
    for failure in range(1, 6):
        at = now - timedelta(minutes=50 - failure)
        for attempt in await _claimed(store, at, ["sms"]):
            delay = 4.0**failure * 2 if failure == 5 else 4.0**failure / 60
            settlement = m.retry(Retryable("HTTP_429"), delay_seconds=delay, spent=failure, error_class="HTTP_429")
            await store.settle(m.WORKER, [m.outcome(attempt, settlement, text="slow down")], now=at)


async def _blocked_keys(store: PostgresStore, now: datetime) -> None:
    for customer in (17, 23):
        for number in range(4):
            body = _json({"customer": customer, "change": number})
            at = now - timedelta(minutes=30 - number)
            await m.enqueue(
                store, now=at, destination="crm", kind="address.changed", order_by=f"customer:{customer}", body=body
            )
    settlement = m.park(ParkReason.DEAD, answer=Terminal("HTTP_422"), error_class="HTTP_422")
    for attempt in await _claimed(store, now - timedelta(minutes=20), ["crm"]):
        outcome = m.outcome(attempt, settlement, text="street is unknown")
        await store.settle(m.WORKER, [outcome], now=now - timedelta(minutes=20))


def _machinery(dsn: str) -> None:
    """Relays that seem to live for as long as a test runs, a breaker, and the failures counted by group."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        for number, name in enumerate(("relay-1", "relay-2")):
            conn.execute(
                "INSERT INTO redrive.relay (worker, name, host, pid, version, destinations, policies, suspects_only,"
                " started_at, seen_at, listener)"
                " VALUES (%s, %s, 'app-1', %s, '0.1.0', %s, '{}', false, now(), now() + interval '1 h', 'listening')",
                [UUID(int=10 + number), name, 4711 + number, list(DESTINATIONS)],
            )
        for name in DESTINATIONS:
            conn.execute("INSERT INTO redrive.destination (name) VALUES (%s) ON CONFLICT DO NOTHING", [name])
        conn.execute(
            "UPDATE redrive.destination SET breaker = 'open', breaker_code = 'HTTP_429', breaker_changed_at = now(),"
            " breaker_opened_at = now(), breaker_trips = 2, breaker_until = now() + interval '1 hour'"
            " WHERE name = 'sms'"
        )
        conn.execute("UPDATE redrive.destination SET rate_per_second = 50, concurrency_limit = 20 WHERE name = 'crm'")
        for duty in ("reap", "expire", "retire", "replay"):
            conn.execute(
                "INSERT INTO redrive.duty (name, every_seconds, started_at, finished_at, result)"
                " VALUES (%s, 3600, now(), now(), 'ok') ON CONFLICT DO NOTHING",
                [duty],
            )
        conn.execute("SELECT redrive.fold_failures_1(100000)")


async def _group_of(store: PostgresStore, destination: str) -> str:
    found = (await list_groups(store, GroupFilter(destination=destination))).rows
    return max(found, key=lambda group: group.waiting).id


async def _replay(store: PostgresStore, group: str, ids: Sequence[MessageId]) -> UUID:
    """All the way up to a replay that runs: there is nobody to carry it out."""
    await workflow.triage(store, ids, Cause.TRANSIENT, ADA)
    await workflow.remediate(store, ids, ADA, evidence="the mail server is up since 14:02")
    wanted = replays.NewReplay(
        name="mail is back", filter={"group": group}, actor="ada", reason="INC-4711", override=True, canary=5
    )
    return (await replays.create(store, wanted)).id


async def _finished_replay(store: PostgresStore, dsn: str, now: datetime) -> UUID:
    crm = await _group_of(store, "crm")
    wanted = replays.NewReplay(
        name="key rotated", filter={"group": crm}, actor="grace", reason="INC-4700", override=True
    )
    made = await replays.create(store, wanted)
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(
            "UPDATE redrive.replay_item SET outcome = CASE WHEN position %% 7 = 0 THEN 'dead' ELSE 'delivered' END,"
            " requeued_at = %s, finished_at = %s WHERE replay_id = %s",
            [now, now, made.id],
        )
        conn.execute("UPDATE redrive.replay SET status = 'done', finished_at = %s WHERE id = %s", [now, made.id])
    return made.id


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()
