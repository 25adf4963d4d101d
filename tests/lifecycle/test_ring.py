"""Who rings the doorbell, and for whom: a NOTIFY only while a relay sleeps that would get up for it (ruling 10)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, LiteralString

import psycopg
import pytest

from redrive.message import ParkReason
from redrive.store.runtime.postgres import PostgresStore
from tests.support import messages as m
from tests.support.bells import Ear

pytestmark = pytest.mark.req("G-08")

SLEEPS_SECONDS = 10.0
ACT: dict[str, Any] = {"actor": "ann", "reason": "it was wrong"}


@pytest.fixture
def ear(database: str) -> Iterator[Ear]:
    with Ear(database) as opened:
        yield opened


@pytest.fixture
async def asleep(store: PostgresStore) -> PostgresStore:
    """A relay sleeps for want of work for `shop`, until ten seconds after the start of the test's time."""
    await store.announce_idle(m.WORKER, [m.DESTINATION], seconds=SLEEPS_SECONDS, now=m.at())
    return store


async def test_nobody_rings_while_nobody_sleeps(store: PostgresStore, ear: Ear) -> None:
    await m.enqueue(store)
    assert ear.rings() == 0


async def test_a_message_rings_for_the_relay_that_sleeps_for_its_destination(asleep: PostgresStore, ear: Ear) -> None:
    await m.enqueue(asleep)
    assert ear.rings() == 1
    await m.enqueue(asleep, destination="mail")
    assert ear.rings() == 0


async def test_a_relay_that_woke_up_is_not_rung(asleep: PostgresStore, ear: Ear) -> None:
    await asleep.announce_idle(m.WORKER, [], seconds=SLEEPS_SECONDS, now=m.at(1))
    await m.enqueue(asleep, now=m.at(2))
    assert ear.rings() == 0


async def test_a_relay_that_says_nothing_more_is_rung_until_its_time_is_over(asleep: PostgresStore, ear: Ear) -> None:
    await m.enqueue(asleep, now=m.at(SLEEPS_SECONDS - 1))
    assert ear.rings() == 1
    await m.enqueue(asleep, now=m.at(SLEEPS_SECONDS))
    assert ear.rings() == 0


async def test_one_relay_that_wakes_up_leaves_the_other_asleep(asleep: PostgresStore, ear: Ear) -> None:
    await asleep.announce_idle(m.OTHER_WORKER, [m.DESTINATION, "mail"], seconds=SLEEPS_SECONDS, now=m.at())
    await asleep.announce_idle(m.WORKER, [], seconds=SLEEPS_SECONDS, now=m.at(1))
    await m.enqueue(asleep, now=m.at(2))
    await m.enqueue(asleep, destination="mail", now=m.at(2))
    assert ear.rings() == 2


async def test_what_is_not_due_yet_does_not_ring(asleep: PostgresStore, ear: Ear) -> None:
    await m.enqueue(asleep, due_at=m.at(5))
    assert ear.rings() == 0


async def test_a_duplicate_and_a_conflict_do_not_ring(asleep: PostgresStore, ear: Ear) -> None:
    await m.enqueue(asleep, key="k")
    assert ear.rings() == 1
    for body in (b'{"order":1}', b'{"order":2}'):
        await m.enqueue_row(asleep, key="k", body=body)
    assert ear.rings() == 0


async def test_what_is_rolled_back_does_not_ring(asleep: PostgresStore, database: str, ear: Ear) -> None:
    with psycopg.connect(database) as conn:
        conn.execute("SELECT redrive.enqueue_1('shop', '{}', p_now => %s)", [m.at()])
        conn.rollback()
    assert ear.rings() == 0


MANY: LiteralString = """
    SELECT count(*) FROM redrive.enqueue_many_1(
        %(destinations)s, array_fill('{}'::bytea, ARRAY[2]), %(keys)s, '{default,default}', '{"",""}',
        '{application/json,application/json}', '{NULL,NULL}', %(due_at)s, '{NULL,NULL}', '{1,1}', NULL, %(now)s)
"""


@pytest.mark.parametrize(
    ("destinations", "keys", "due", "rings"),
    [
        (["shop", "shop"], [None, None], [None, None], 1),
        (["mail", "shop"], [None, None], [None, 5], 0),
        (["mail", "shop"], [None, None], [5, None], 1),
        (["mail", "fax"], [None, None], [None, None], 0),
        (["shop", "mail"], ["known", None], [None, None], 0),
    ],
)
async def test_many_ring_once_if_one_of_them_is_new_and_due_for_whoever_sleeps(
    asleep: PostgresStore,
    ear: Ear,
    destinations: list[str],
    keys: list[str | None],
    due: list[float | None],
    rings: int,
) -> None:
    await m.enqueue_row(asleep, key="known", body=b"{}", kind="")
    ear.rings()
    due_at = [None if seconds is None else m.at(seconds) for seconds in due]
    await asleep.rows(MANY, {"destinations": destinations, "keys": keys, "due_at": due_at, "now": m.at()})
    assert ear.rings() == rings


async def test_a_transaction_that_shall_be_prepared_can_leave_the_bell_alone(
    asleep: PostgresStore, database: str, ear: Ear
) -> None:
    """PostgreSQL prepares none that has a NOTIFY in it."""
    with psycopg.connect(database) as conn:
        conn.execute("SET LOCAL redrive.ring = off")
        conn.execute("SELECT redrive.enqueue_1('shop', '{}', p_now => %s)", [m.at()])
    assert ear.rings() == 0


async def parked(store: PostgresStore, reason: ParkReason, **values: Any) -> Any:
    """A message that waits for a person."""
    message_id = await m.enqueue(store, **values)
    await m.settle(store, await m.claim(store), m.park(reason))
    return message_id


@pytest.mark.req("G-16")
async def test_what_a_person_lets_go_rings(asleep: PostgresStore, ear: Ear) -> None:
    dead = await parked(asleep, ParkReason.DEAD)
    held = await parked(asleep, ParkReason.HELD)
    unrecorded = await parked(asleep, ParkReason.UNRECORDED)
    ear.rings()
    await asleep.requeue(dead, **ACT, now=m.at())
    assert ear.rings() == 1
    await asleep.deny(held, **ACT, now=m.at())
    assert ear.rings() == 1
    await asleep.repair(unrecorded, **ACT, now=m.at())
    assert ear.rings() == 1


@pytest.mark.req("G-07")
async def test_a_key_that_a_person_lets_go_on_rings(asleep: PostgresStore, ear: Ear) -> None:
    for key in ("a", "b"):
        await parked(asleep, ParkReason.HELD, order_by=key)
        await m.enqueue(asleep, order_by=key)
    waiting = await m.enqueue(asleep, order_by="c")
    await m.enqueue(asleep, order_by="c")
    ear.rings()
    (held,) = await asleep.rows("SELECT id FROM redrive.parked ORDER BY id LIMIT 1", [])
    await asleep.discard(held[0], **ACT, now=m.at())
    assert ear.rings() == 1
    await asleep.skip("default", "b", **ACT, now=m.at())
    assert ear.rings() == 1
    await asleep.cancel(waiting, now=m.at())
    assert ear.rings() == 1


@pytest.mark.req("G-09")
async def test_what_is_handed_back_and_the_next_stage_ring(asleep: PostgresStore, ear: Ear) -> None:
    await m.enqueue(asleep)
    attempt = await m.claim(asleep)
    ear.rings()
    await asleep.hand_back(m.WORKER, [attempt.fence], now=m.at())
    assert ear.rings() == 1
    await m.settle(asleep, await m.claim(asleep), m.advance())
    assert ear.rings() == 1
    await m.settle(asleep, await m.claim(asleep), m.retry(delay_seconds=3))
    assert ear.rings() == 0


@pytest.mark.req("G-25")
async def test_resume_rings_in_any_case(store: PostgresStore, ear: Ear) -> None:
    """A relay for which it was paused does not sleep for want of work."""
    await store.pause(m.DESTINATION, actor="ann", reason="down", now=m.at())
    assert ear.rings() == 0
    await store.resume(m.DESTINATION, actor="ann", reason="up", now=m.at(1))
    assert ear.rings() == 1


async def test_a_relay_that_takes_its_leave_is_forgotten_by_the_bell(asleep: PostgresStore, ear: Ear) -> None:
    await asleep.deregister(m.WORKER)
    await m.enqueue(asleep)
    assert ear.rings() == 0


async def test_the_rows_of_relays_that_died_are_cleared_away(asleep: PostgresStore) -> None:
    await asleep.forget_relays(after_seconds=60, now=m.at(SLEEPS_SECONDS + 59))
    assert await asleep.rows("SELECT worker FROM redrive.doorbell", []) == [(m.WORKER,)]
    await asleep.forget_relays(after_seconds=60, now=m.at(SLEEPS_SECONDS + 61))
    assert await asleep.rows("SELECT worker FROM redrive.doorbell", []) == []
