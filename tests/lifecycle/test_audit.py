"""What people did: every act leaves one row with who and why, chained by a hash that anybody can compute again."""

from __future__ import annotations

from typing import Any

import pytest

from redrive.errors import InvalidValue
from redrive.message import MessageId, ParkReason
from redrive.store.runtime.postgres import PostgresStore
from tests.support import messages as m
from tests.support.situations import picture
from tests.support.verbs import ACT

pytestmark = pytest.mark.req("G-05")

FITTING = {
    "requeue": ParkReason.DEAD,
    "confirm": ParkReason.HELD,
    "deny": ParkReason.HELD,
    "repair": ParkReason.UNRECORDED,
    "discard": ParkReason.DEAD,
}
BROKEN_LINKS = """
    SELECT id FROM (SELECT o.*, lag(hash, 1, ''::bytea) OVER (ORDER BY id) AS link FROM redrive.operator_action o) o
     WHERE previous_hash <> link
        OR hash <> redrive.action_hash(id, at, actor, act, subject, reason, before, after, previous_hash)
"""


async def parked(store: PostgresStore, reason: ParkReason) -> MessageId:
    message_id = await m.enqueue(store)
    await m.settle(store, await m.claim(store), m.park(reason))
    return message_id


async def actions(store: PostgresStore) -> list[Any]:
    return await store.rows("SELECT act, actor, subject, reason, at FROM redrive.operator_action ORDER BY id", [])


@pytest.mark.parametrize(("act", "reason"), FITTING.items())
async def test_act_is_audited_in_its_own_transaction(store: PostgresStore, act: str, reason: ParkReason) -> None:
    message_id = await parked(store, reason)
    await getattr(store, act)(message_id, **ACT, now=m.at(5))
    assert await actions(store) == [(act, "ada", str(message_id), "looked into it", m.at(5))]
    entry = (await store.history(message_id))[-1]
    assert (entry.verb, entry.actor, entry.reason) == (act, "ada", "looked into it")


@pytest.mark.parametrize("act", FITTING)
async def test_refused_act_leaves_no_trace(store: PostgresStore, act: str) -> None:
    message_id = await m.enqueue(store)
    with pytest.raises(Exception, match="is pending"):
        await getattr(store, act)(message_id, **ACT, now=m.at(5))
    assert await actions(store) == []


@pytest.mark.req("G-19")
@pytest.mark.parametrize(("act", "reason"), FITTING.items())
@pytest.mark.parametrize("who", [{"actor": " ", "reason": "why"}, {"actor": "ada", "reason": ""}], ids=str)
async def test_act_without_an_actor_or_a_reason_changes_nothing(
    store: PostgresStore, act: str, reason: ParkReason, who: dict[str, str]
) -> None:
    message_id = await parked(store, reason)
    before = await picture(store, message_id)
    with pytest.raises(InvalidValue, match="actor"):
        await getattr(store, act)(message_id, **who, now=m.at(5))
    assert await picture(store, message_id) == before


@pytest.mark.req("G-19")
async def test_sql_refuses_an_act_without_a_reason_too(store: PostgresStore) -> None:
    message_id = await parked(store, ParkReason.DEAD)
    with pytest.raises(Exception, match="needs an actor and a reason"):
        await store.rows("SELECT redrive.requeue_1(%s, 'ada', ' ')", [message_id])
    assert await m.state_of(store, message_id) == "parked·dead"


async def test_pause_and_resume_are_audited_once(store: PostgresStore) -> None:
    for verb in (store.pause, store.pause, store.resume, store.resume):
        await verb(m.DESTINATION, actor="ada", reason="release", now=m.at(5))
    assert [row[0] for row in await actions(store)] == ["pause", "resume"]


async def test_cancel_is_audited_where_a_person_asked_for_it(store: PostgresStore) -> None:
    by_application, by_person = await m.enqueue(store), await m.enqueue(store)
    await store.cancel(by_application, now=m.at(1))
    await store.cancel(by_person, **ACT, now=m.at(2))
    assert await actions(store) == [("cancel", "ada", str(by_person), "looked into it", m.at(2))]


async def test_cancel_that_changed_nothing_is_not_audited(store: PostgresStore) -> None:
    message_id = await parked(store, ParkReason.DEAD)
    await store.cancel(message_id, **ACT, now=m.at(1))
    assert await actions(store) == []


@pytest.mark.req("G-19")
async def test_cancel_by_a_person_without_a_reason_is_refused_at_the_call(store: PostgresStore) -> None:
    message_id = await m.enqueue(store)
    with pytest.raises(InvalidValue, match="reason"):
        await store.cancel(message_id, actor="ada", now=m.at(1))
    assert await m.state_of(store, message_id) == "pending"


async def test_hash_chain_can_be_computed_again(store: PostgresStore) -> None:
    for act, reason in FITTING.items():
        message_id = await parked(store, reason)
        await getattr(store, act)(message_id, **ACT, now=m.at(5))
        await store.cancel(message_id, now=m.at(5))
    await store.pause(m.DESTINATION, actor="ada", reason='a "quoted" reason', now=m.at(6))
    assert [row[0] for row in await store.rows("SELECT id FROM redrive.operator_action ORDER BY id", [])] == [
        1, 2, 3, 4, 5, 6,
    ]  # fmt: skip
    assert await store.rows(BROKEN_LINKS, []) == []


async def test_hash_does_not_depend_on_the_time_zone_of_the_session(store: PostgresStore) -> None:
    await store.pause(m.DESTINATION, **ACT, now=m.at(6))
    async with store.connection() as conn, conn.transaction():
        await conn.execute("SET LOCAL timezone = 'Asia/Kathmandu'")
        cursor = await conn.execute(BROKEN_LINKS.encode())
        assert await cursor.fetchall() == []


@pytest.mark.parametrize(
    "change", ["actor = 'eve'", "reason = 'another'", "at = at + interval '1 second'", "act = 'resume'", "id = 7"]
)
async def test_row_that_was_changed_behind_the_trigger_breaks_the_chain(store: PostgresStore, change: str) -> None:
    await store.pause(m.DESTINATION, **ACT, now=m.at(6))
    async with store.connection() as conn:
        await conn.execute("ALTER TABLE redrive.operator_action DISABLE TRIGGER ALL")
        await conn.execute(f"UPDATE redrive.operator_action SET {change}".encode())
    assert len(await store.rows(BROKEN_LINKS, [])) == 1
