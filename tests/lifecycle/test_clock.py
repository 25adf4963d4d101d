"""What people are shown of a jump of the database's clock, and what is re-dated beside open transactions (G-33)."""

from __future__ import annotations

from datetime import timedelta

import psycopg
import pytest

from redrive.operate.findings import findings
from redrive.operate.observe.health import Health, Verdict
from redrive.store.reads.status import status as read_status
from redrive.store.runtime.postgres import PostgresStore
from tests.support import messages as m

pytestmark = pytest.mark.req("G-33")

BACK = -3 * 3600.0 - 120
ALICE = m.WORKER


async def test_a_jump_is_shown_for_a_day(store: PostgresStore) -> None:
    noticed = await store.now()
    await store.clock_jumped(ALICE, era=0, offset_seconds=BACK, window_seconds=5, now=noticed)
    for later, shown in ((timedelta(hours=23), True), (timedelta(hours=25), False)):
        status = await read_status(store, now=noticed + later)
        assert [found.code for found in findings(status) if found.code == "clock_jumped"] == ["clock_jumped"] * shown
    (found,) = [one for one in findings(await read_status(store, now=noticed)) if one.code == "clock_jumped"]
    assert found.detail.startswith("was set back by 3 h 2 min at ")
    assert found.detail.endswith(", more to come")


def test_a_relay_that_heard_of_a_jump_is_degraded_for_a_day() -> None:
    now = [0.0]
    health = Health(monotonic=lambda: now[0], stalled_seconds=1e9)
    health._note("relay.started", {})
    assert health.verdict() is Verdict.HEALTHY
    health._note("relay.clock_jumped", {"offset_seconds": BACK})
    assert health.verdict() is Verdict.DEGRADED
    assert [check.name for check in health.checks() if check.reason] == ["clock"]
    now[0] = 86_401.0
    assert health.verdict() is Verdict.HEALTHY


async def test_what_an_open_transaction_holds_is_left_over_and_re_dated_later(
    store: PostgresStore, database: str
) -> None:
    """A message that another transaction has locked, one whose lane it holds, and one that is not committed yet."""
    with psycopg.connect(database, autocommit=True) as conn, psycopg.connect(database) as other:
        for key, lane in (("held", None), ("lane", "k"), ("free", None)):
            conn.execute(ENQUEUE, [key, lane])
        other.execute(
            "SELECT 1 FROM redrive.pending p JOIN redrive.message USING (id) WHERE key = 'held' FOR UPDATE OF p"
        )
        other.execute("SELECT 1 FROM redrive.lane FOR UPDATE")
        other.execute(ENQUEUE, ["late", None])
        after = await store.now() + timedelta(seconds=BACK)
        era = await store.clock_jumped(ALICE, era=0, offset_seconds=BACK, window_seconds=5, now=after)
        first = await store.redate(era, after=None, limit=100, now=after)
        assert (first.next, first.left_over, first.settled) == (None, 2, False)
        assert first.redated == 2, "the message that is free, and the token of the lane"
        other.commit()
        second = await store.redate(era, after=None, limit=100, now=after)
        assert (second.redated, second.left_over) == (3, 0)
        third = await store.redate(era, after=None, limit=100, now=after)
        assert (third.redated, third.left_over) == (0, 0)
        due = conn.execute("SELECT DISTINCT due_at FROM redrive.pending").fetchall()
        assert due == [(after,)]
        (redated,) = conn.execute("SELECT redated FROM redrive.clock_jump").fetchone() or (0,)
        assert redated == 5


ENQUEUE = "SELECT redrive.enqueue_1('shop', '{}'::bytea, p_key => %s, p_order_by => %s)"
HOLD = "SELECT 1 FROM redrive.pending p JOIN redrive.message USING (id) WHERE key = 'held' FOR UPDATE OF p"
