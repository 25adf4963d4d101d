"""Two tenants with the same things each, and one request for every operation of the API.

`ROWS` has a row for each operation that OpenAPI names; a test fails for one without. What is of umbrella carries its
mark, so that any answer to acme that shows something of it is seen.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from redrive.answers import Terminal, Unknown
from redrive.message import ParkReason
from redrive.operate.desk import replays
from redrive.operate.desk.replays import NewReplay
from redrive.ports import RelayInfo
from redrive.store.runtime.postgres import PostgresStore
from tests.support import messages as m
from tests.support.workers import BILLING, INFO

MARK = "umbrella-secret"


@dataclass(frozen=True)
class Things:
    """What a tenant has, by name; or what nobody has."""

    tenant: str
    ids: Mapping[str, str]
    order_by: str
    replay: str

    def __getitem__(self, name: str) -> str:
        return self.ids[name]


@dataclass(frozen=True)
class World:
    acme: Things
    umbrella: Things
    group: str
    token: str

    @property
    def nobody(self) -> Things:
        """Ids that never were, each time others."""
        return Things(
            tenant="acme", ids={name: str(uuid4()) for name in self.acme.ids}, order_by="nobody", replay=str(uuid4())
        )


async def made(dsn: str) -> World:
    now = datetime.now(UTC)
    async with PostgresStore(dsn) as store:
        relay = RelayInfo(
            worker=m.WORKER, name="relay-1", host="app-1", pid=4711, version="1.0", destinations=[m.DESTINATION]
        )
        await store.register(relay, now=now)
        await store.heartbeat_worker(INFO, [BILLING], now=now)
        acme = await _things(store, "acme", "acme", now)
        umbrella = await _things(store, "umbrella", MARK, now)
        while await store.fold_failures(limit=1000):
            pass
        ((group,),) = await store.rows(
            "SELECT encode(failure_group, 'hex') FROM redrive.parked WHERE id = %s", [acme["dead"]]
        )
        ((token,),) = await store.rows(
            "SELECT redrive.create_token_1('token', 'spare', 'viewer', '*', '\\x00', 60, 'test', 'test')", []
        )
        return World(acme, umbrella, group, str(token))


async def _things(store: PostgresStore, tenant: str, mark: str, now: datetime) -> Things:
    ids: dict[str, str] = {}
    for name, settlement in {
        "dead": m.park(answer=Terminal("HTTP_409"), error_class="HTTP_409"),
        "edited": m.park(answer=Terminal("HTTP_409"), error_class="HTTP_409"),
        "held": m.park(ParkReason.HELD, answer=Unknown("TIMEOUT"), error_class="TIMEOUT"),
        "unrecorded": m.park(ParkReason.UNRECORDED, error_class="RECORD_FAILED"),
        "delivered": m.close(),
        "discarded": m.park(answer=Terminal("HTTP_410"), error_class="HTTP_410"),
    }.items():
        made_ = await m.enqueue(
            store,
            now=now,
            tenant=tenant,
            key=f"{mark}:{name}",
            kind=f"{mark}.kind",
            body=b'{"x": "' + mark.encode() + b'"}',
        )
        await m.settle(store, await m.claim(store, now=now), settlement, now=now, text=f"{mark} failed")
        ids[name] = str(made_)
    await store.rows("SELECT redrive.discard_1(%s, 'x', 'x')", [ids["discarded"]])
    order_by = f"{mark}-key"
    head = await m.enqueue(store, now=now, tenant=tenant, order_by=order_by, key=f"{mark}:head", kind="ordered")
    ids["head"] = str(head)
    await m.settle(store, await m.claim(store, now=now), m.park(error_class="HTTP_400"), now=now, text=f"{mark} failed")
    ids["behind"] = str(await m.enqueue(store, now=now, tenant=tenant, order_by=order_by, kind="ordered"))
    wanted = NewReplay(
        name=f"{mark} replay",
        filter={"tenant": tenant, "ids": [ids["edited"]]},
        actor="test",
        reason="test",
        override=True,
    )
    replay = await replays.create(store, wanted)
    await store.rows(
        "INSERT INTO redrive.proposal (act, subject, asked_by, asked_at, reason, content_type, bytes)"
        " VALUES ('edit', %s, 'ada', clock_timestamp(), %s, 'application/json', %s) RETURNING 1",
        [ids["edited"], f"{mark} proposed", PROPOSED],
    )
    return Things(tenant=tenant, ids=ids, order_by=order_by, replay=str(replay.id))


WHY = {"reason": "INC-7"}
PROPOSED = b'{"x": 1}'
PATCH = [{"op": "add", "path": "/y", "value": 1}]


@dataclass(frozen=True)
class Row:
    """A request that fits: of somebody's things, and what who may gets back.

    whole: it belongs to no tenant, so that there is nothing of another one to ask for.
    """

    path: Callable[[World, Things], Mapping[str, str]] = lambda _, __: {}
    body: Callable[[World, Things], Any] | None = None
    query: Mapping[str, str] = field(default_factory=dict)
    answers: frozenset[int] = frozenset({200})
    whole: bool = False


def _id(name: str, **more: str) -> Callable[[World, Things], Mapping[str, str]]:
    return lambda _, things: {"id": things[name], **more}


def _ids(name: str, **more: Any) -> Callable[[World, Things], Any]:
    return lambda _, things: {"ids": [things[name]], **WHY, **more}


def _why(**more: Any) -> Callable[[World, Things], Any]:
    return lambda _, __: {**WHY, **more}


def _replay(**more: str) -> Callable[[World, Things], Mapping[str, str]]:
    return lambda _, things: {"id": things.replay, **more}


def _skip(_: World, things: Things) -> Any:
    return {**WHY, "tenant": things.tenant, "order_by": things.order_by, "sequence": 1, "dry_run": True}


SHOP: Callable[[World, Things], Mapping[str, str]] = lambda _, __: {"name": m.DESTINATION}  # noqa: E731
GROUP: Callable[[World, Things], Mapping[str, str]] = lambda world, _: {"id": world.group}  # noqa: E731
OR_REFUSED = frozenset({200, 409})

ROWS: dict[tuple[str, str], Row] = {
    ("GET", "/me"): Row(),
    ("GET", "/status"): Row(),
    ("GET", "/relays"): Row(whole=True),
    ("GET", "/workers"): Row(whole=True),
    ("GET", "/doctor"): Row(whole=True),
    ("GET", "/messages"): Row(),
    ("GET", "/messages/{id}"): Row(_id("dead")),
    ("GET", "/messages/{id}/payload"): Row(_id("dead")),
    ("POST", "/messages/{id}/copy"): Row(
        _id("discarded"), lambda _, __: {**WHY, "key": f"copy:{uuid4()}"}, answers=frozenset({201})
    ),
    ("POST", "/messages/{id}/{act}"): Row(_id("dead", act="requeue"), _why(dry_run=True)),
    ("POST", "/acts"): Row(body=_ids("dead", act="discard", dry_run=True)),
    ("GET", "/parked"): Row(query={"reason": "dead"}),
    ("GET", "/parked/{id}"): Row(_id("held")),
    ("POST", "/dead/triage"): Row(body=_ids("dead", cause="data")),
    ("POST", "/dead/remediate"): Row(body=_ids("dead", evidence="seen")),
    ("POST", "/dead/{id}/edit"): Row(_id("dead"), _why(patch=PATCH, row_version=1), answers=OR_REFUSED),
    ("GET", "/dead/{id}/proposed"): Row(_id("edited")),
    ("POST", "/dead/{id}/approve"): Row(
        _id("edited"), _why(sha256=hashlib.sha256(PROPOSED).hexdigest()), answers=OR_REFUSED
    ),
    ("POST", "/dead/edit"): Row(body=_ids("dead", patch=PATCH)),
    ("POST", "/dead/validate"): Row(body=_ids("dead")),
    ("POST", "/dead/ignore"): Row(body=_ids("dead")),
    ("POST", "/dead/verify"): Row(body=_ids("delivered")),
    ("GET", "/groups"): Row(whole=True, query={"all": "true"}),
    ("GET", "/groups/{id}"): Row(GROUP, whole=True),
    ("POST", "/groups/{id}/{mark}"): Row(
        lambda world, _: {"id": world.group, "mark": "note"}, _why(value="known"), whole=True
    ),
    ("GET", "/replays"): Row(),
    ("POST", "/replays/plan"): Row(body=lambda _, things: {"ids": [things["dead"]]}),
    ("POST", "/replays"): Row(
        body=lambda _, things: {**WHY, "name": "again", "ids": [things["dead"]]}, answers=frozenset({201, 409})
    ),
    ("GET", "/replays/{id}"): Row(_replay()),
    ("GET", "/replays/{id}/items"): Row(_replay()),
    ("POST", "/replays/{id}/approve"): Row(_replay(), _why(), answers=frozenset({409})),
    ("POST", "/replays/{id}/{act}"): Row(_replay(act="pause"), _why(), answers=OR_REFUSED),
    ("GET", "/destinations"): Row(whole=True),
    ("GET", "/destinations/{name}"): Row(SHOP, whole=True),
    ("POST", "/destinations/{name}/pause"): Row(SHOP, _why(dry_run=True), whole=True),
    ("POST", "/destinations/{name}/resume"): Row(SHOP, _why(dry_run=True), whole=True),
    ("POST", "/destinations/{name}/test"): Row(SHOP, _why(seconds=0), answers=OR_REFUSED, whole=True),
    ("GET", "/keys"): Row(),
    ("POST", "/keys/skip"): Row(body=_skip),
    ("GET", "/audit"): Row(whole=True),
    ("GET", "/audit/verify"): Row(whole=True),
    ("GET", "/tokens"): Row(whole=True),
    ("POST", "/tokens"): Row(
        body=_why(name="new", role="viewer"), answers=frozenset({201}), whole=True
    ),
    ("POST", "/tokens/{id}/revoke"): Row(lambda world, _: {"id": world.token}, _why(), whole=True),
}  # fmt: skip
