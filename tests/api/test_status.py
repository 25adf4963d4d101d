"""`GET /status`: a caller of one tenant is told of that tenant only."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from redrive.operate.web.app import API_PREFIX
from redrive.operate.web.principal import Role
from redrive.ports import ClaimRequest
from redrive.store.runtime.postgres import PostgresStore
from tests.api import world as w
from tests.api.conftest import House, asking, bearer
from tests.support import messages as m

pytestmark = [pytest.mark.req("G-21")]
FOREIGN = "umbrella-only"


async def _trouble(house: House) -> None:
    """For everybody: a paused destination, a duty that is overdue, stopped replays, and a dead letter of umbrella."""
    async with PostgresStore(house.dsn) as store:
        await m.enqueue(store, tenant="umbrella", destination=FOREIGN)
        taken = await store.claim(m.WORKER, [ClaimRequest(FOREIGN, 1, 1)], lease_seconds=60, now=m.START)
        await m.settle(store, taken.attempts[0], m.park())
        await store.pause(m.DESTINATION, actor="ann", reason=f"{w.MARK} takes stock")
        long_ago = datetime.now(UTC) - timedelta(minutes=5)
        await store.begin_duty("reap", m.WORKER, every_seconds=15, now=long_ago)
        await store.end_duty("reap", m.WORKER, result="", now=long_ago)
    house.execute("UPDATE redrive.replay SET status = 'stopped', stop_reason = 'it failed'")


async def test_the_findings_for_one_tenant_are_those_of_its_own_messages(house: House) -> None:
    """Not those of other tenants, of relays, of duties; nor what an operator said of a destination that all share."""
    await w.made(house.dsn)
    await _trouble(house)
    async with asking(house.app()) as client:
        own, whole = [
            (await client.get(f"{API_PREFIX}/status", headers=bearer(await house.token(Role.ADMIN, tenant)))).json()
            for tenant in ("acme", "*")
        ]
    assert {(one["code"], one["subject"]) for one in own["findings"]} == {
        ("paused", m.DESTINATION),
        ("keys_halted", "ordering keys"),
        ("replay_stopped", "acme replay"),
        ("dead", m.DESTINATION),
        ("held", m.DESTINATION),
        ("unrecorded", m.DESTINATION),
    }
    assert not [mark for mark in (w.MARK, FOREIGN) if mark in json.dumps(own)]
    assert (own["relays"], own["duties"], own["workers"], own["consumers"]) == ([], [], [], [])
    assert [worker["name"] for worker in whole["workers"]] == ["worker-1"]
    found = {(one["code"], one["subject"]) for one in whole["findings"]}
    assert {("duty_overdue", "reap"), ("dead", FOREIGN), ("replay_stopped", f"{w.MARK} replay")} <= found
