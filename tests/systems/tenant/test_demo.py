"""`redrive tenant demo` tells a story that is true: it ends as it says."""

from __future__ import annotations

import asyncio
import io
import os
from pathlib import Path

import pytest
from rich.console import Console

from redrive.kit.demo import Demo
from redrive.kit.proof import journal
from redrive.store.runtime.postgres import PostgresStore
from redrive.systems.tenant.demo import app as demo_app
from redrive.systems.tenant.demo import play, story

pytestmark = pytest.mark.req("T-01", "T-05")
UNUSED = "http://127.0.0.1:9"


def told(dsn: str) -> play.Told:
    return play.Told(dsn, UNUSED, play._next_run(dsn), Console(file=io.StringIO()))


def test_each_order_of_the_story_has_a_tenant_and_a_key_of_its_own() -> None:
    orders = (*story.ADDED, story.ROLLED_BACK)
    assert {order.tenant for order in orders} == set(story.TENANTS)
    keys = {story.TYPES.key(one.tenant, story.EVENT_TYPE, one.event(run).parts) for one in orders for run in (1, 2)}
    assert len(keys) == 2 * len(orders)


def test_a_story_that_ends_otherwise_is_said_so(database: str, tmp_path: Path) -> None:
    one = told(database)
    one._add(story.BREAD)
    one._add(story.ROLLED_BACK)
    ledger = journal.Journal(tmp_path / "ledger")
    for _ in range(2):
        ledger.write(tenant=story.BAKERY, order="bread-1", token="t")
    found = play.violations(one, tmp_path / "ledger")
    assert "bread-1 is pending; it should be delivered." in found
    assert "The subscriber of bakery took bread-1 2 times; it should be 1." in found
    assert "cake-1 is pending; it should be not there." in found
    assert "tickets-1 is not there; it should be dead." in found


@pytest.mark.full
@pytest.mark.timeout(400)
def test_the_story_ends_as_it_says_and_the_next_one_is_another(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(os.environ, demo_app.VARIABLE, "")  # put back in the end
    said = io.StringIO()
    demo = Demo(home=tmp_path, once=True, dsn=database)
    assert play.run(demo, Console(file=said, width=200)) == 0, said.getvalue()
    for words in (
        "absorbed: key",
        "So far: backlog 0,",
        "failed, and is tried again: HTTP_503",
        "While it is down: backlog 3, failed 3",
    ):
        assert words in said.getvalue()
    assert "In the end: backlog 0, failed 1, dead letters 1, processed 5" in said.getvalue()
    assert play._next_run(database) == 2

    async def conserved() -> object:
        async with PostgresStore(database) as store:
            return await store.rows(
                "SELECT enqueued = pending + leased + parked + closed FROM redrive.conservation", []
            )

    assert asyncio.run(conserved()) == [(True,)]
