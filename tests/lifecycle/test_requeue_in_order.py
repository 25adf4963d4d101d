"""A dead head that has halted its key is requeued in order, whatever became of those behind it (G-07)."""

from __future__ import annotations

import pytest

from redrive.operate.desk import workflow
from redrive.operate.desk.causes import Cause
from redrive.store.runtime import desk
from redrive.store.runtime.postgres import PostgresStore
from redrive.who import Who
from tests.support import messages as m
from tests.support.verbs import ACT

NOW = m.at(200)


@pytest.mark.req("G-07")
async def test_a_head_that_was_edited_goes_first_after_a_later_one_was_merely_cancelled(store: PostgresStore) -> None:
    """An edit leaves it parked: its key halts on."""
    dead, second, third = [await m.enqueue(store, order_by="k") for _ in range(3)]
    await m.settle(store, await m.claim(store), m.park())
    await workflow.triage(store, [dead], Cause.DATA, Who(**ACT))
    edit = desk.edit(store, dead, row_version=2, body=b"{}", content_type="application/json", paths=[], **ACT)
    assert await edit == "done"
    await store.cancel(second, now=NOW)
    await store.requeue(dead, **ACT, now=NOW)
    assert (await m.claim(store, now=NOW)).id == dead
    assert await m.state_of(store, third) == "pending"
