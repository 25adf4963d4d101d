"""Evidence that a message was delivered: it is held with it, wherever it is, and is closed only as delivered."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from redrive.errors import ActRefused
from redrive.message import Attempt, Closed, MessageId, ParkReason
from redrive.policy import Settlement
from redrive.ports import RelayInfo
from redrive.store.reads.messages import show_message
from redrive.store.runtime.postgres import PostgresStore
from tests.support import messages as m
from tests.support.situations import picture

pytestmark = pytest.mark.req("P-11")


@pytest.fixture
def store(shared_store: PostgresStore) -> PostgresStore:
    return shared_store


async def add_evidence(store: PostgresStore, id: MessageId, now: datetime = m.START) -> None:
    await store.rows("SELECT redrive.add_evidence(%s, 'statement', 'entry 7', 'ref-7', %s)", [id, now])


async def confirm_proven(store: PostgresStore, id: MessageId, now: datetime = m.START) -> str:
    query = "SELECT redrive.confirm_proven(%s, 'reconciliation', 'entry 7 of the statement', 'ref-7', %s)"
    return str((await store.rows(query, [id, now]))[0][0])


async def register(store: PostgresStore, **values: Any) -> None:
    given: dict[str, Any] = {"name": "r", "host": "h", "pid": 1, "version": "1", "destinations": [m.DESTINATION]}
    await store.register(RelayInfo(worker=m.WORKER, **{**given, **values}), now=m.START)


async def dead(store: PostgresStore, **values: Any) -> MessageId:
    id = await m.enqueue(store, **values)
    await m.settle(store, await m.claim(store), m.park(ParkReason.DEAD, halts=False))
    return id


@pytest.mark.parametrize("order_by", [None, "customer:1"])
async def test_a_pending_message_with_evidence_is_held_before_its_first_attempt(
    store: PostgresStore, order_by: str | None
) -> None:
    id = await m.enqueue(store, order_by=order_by)
    await add_evidence(store, id, m.at(1))
    row = await m.row(store, "parked", id)
    assert (row["reason"], row["error_class"], row["halts"]) == ("held", "LATE_SUCCESS", True)
    assert row["in_doubt_since"] is not None
    assert "ref-7" in row["last_text"]
    assert [(e.verb, e.code) for e in await store.history(id)] == [("hold", "LATE_SUCCESS")]
    assert (await m.claim_all(store, now=m.at(2))).attempts == []
    assert await m.conserved(store)


async def test_a_dead_message_with_evidence_is_held_and_halts_its_key(store: PostgresStore) -> None:
    id = await dead(store, order_by="customer:1")
    await m.enqueue(store, order_by="customer:1")
    await add_evidence(store, id, m.at(1))
    row = await m.row(store, "parked", id)
    assert (row["reason"], row["error_class"], row["halts"], row["row_version"]) == ("held", "LATE_SUCCESS", True, 2)
    assert (await m.claim_all(store, now=m.at(2))).attempts == []


async def test_the_same_evidence_is_kept_once(store: PostgresStore) -> None:
    id = await m.enqueue(store)
    await add_evidence(store, id)
    before = await picture(store, id)
    await add_evidence(store, id, m.at(5))
    assert await picture(store, id) == before
    assert await store.rows("SELECT redrive.has_evidence(%s)", [id]) == [(True,)]
    assert await store.rows("SELECT redrive.has_evidence(%s)", [m.SOME_ID]) == [(False,)]


async def test_evidence_never_waits_for_a_row_that_another_transaction_holds(store: PostgresStore) -> None:
    id = await m.enqueue(store, order_by="customer:1")
    async with store.connection() as other, other.transaction():
        await other.execute("SELECT 1 FROM redrive.lane FOR UPDATE")
        await add_evidence(store, id)
        assert await confirm_proven(store, id) == "busy"
    assert await m.state_of(store, id) == "pending"
    assert (await m.claim(store)).has_evidence


async def test_a_message_whose_answer_is_kept_is_not_held(store: PostgresStore) -> None:
    id = await m.enqueue(store)
    await m.settle(store, await m.claim(store), m.park(ParkReason.UNRECORDED))
    await add_evidence(store, id)
    assert await m.state_of(store, id) == "parked·unrecorded"
    await store.repair(id, actor="ada", reason="mended", now=m.at(1))
    await add_evidence(store, id)
    assert await m.state_of(store, id) == "pending"


@pytest.mark.parametrize("order_by", [None, "customer:1"])
@pytest.mark.parametrize("state", ["pending", "dead", "held"])
async def test_proof_closes_a_pending_or_parked_message_as_delivered(
    store: PostgresStore, state: str, order_by: str | None
) -> None:
    id = await m.enqueue(store, order_by=order_by)
    if state != "pending":
        await m.settle(store, await m.claim(store), m.park(ParkReason(state)))
    await m.enqueue(store, order_by=order_by)
    assert await confirm_proven(store, id, m.at(1)) == "done"
    assert await m.state_of(store, id) == "delivered"
    last = (await store.history(id))[-1]
    assert (last.verb, last.actor, last.reference, last.closed) == ("confirm", "reconciliation", "ref-7", "delivered")
    acts = await store.rows("SELECT act, actor FROM redrive.operator_action WHERE subject = %s", [str(id)])
    assert acts == [("confirm", "reconciliation")]
    assert len((await m.claim_all(store, now=m.at(2))).attempts) == 1  # the key goes on
    assert await confirm_proven(store, id, m.at(3)) == "delivered"
    assert await m.conserved(store)


@pytest.mark.parametrize("state", ["pending", "held"])
async def test_proof_keeps_the_answer_where_the_destination_records(store: PostgresStore, state: str) -> None:
    await register(store, records=[m.DESTINATION])
    id = await m.enqueue(store)
    if state != "pending":
        await m.settle(store, await m.claim(store), m.park(ParkReason(state)))
    assert await confirm_proven(store, id, m.at(1)) == "done"
    attempt = await m.claim(store, now=m.at(2))
    assert attempt.kept_answer == {"answer": "delivered", "reference": "ref-7"}
    assert attempt.in_doubt_since is None
    assert await confirm_proven(store, id, m.at(3)) == "busy"


async def test_proof_of_a_message_in_flight_waits_for_its_claim(store: PostgresStore) -> None:
    id = await m.enqueue(store)
    await m.claim(store)
    before = await picture(store, id)
    assert await confirm_proven(store, id) == "busy"
    assert await picture(store, id) == before
    assert await confirm_proven(store, m.SOME_ID) == "not_found"


ACT: dict[str, Any] = {"actor": "ada", "reason": "asked the bank"}
GRACE: dict[str, Any] = {"actor": "grace", "reason": "so did I"}
GUARDED = [{"money": [m.DESTINATION]}, {"in_doubt": {m.DESTINATION: "lookup"}}, {"in_doubt": {m.DESTINATION: "hold"}}]


async def lost(store: PostgresStore, **values: Any) -> Attempt:
    """A message whose first claim was lost; it is pending, in doubt."""
    await m.enqueue(store, **values)
    claimed = await m.claim(store)
    await store.reap(limit=10, worker=m.WORKER, now=m.at(1))
    return claimed


@pytest.mark.req("G-14")
@pytest.mark.parametrize("declared", GUARDED, ids=str)
async def test_a_late_success_is_evidence_where_a_second_effect_would_be_one(
    store: PostgresStore, declared: dict[str, Any]
) -> None:
    await register(store, **declared)
    claimed = await lost(store)
    assert (await m.settle(store, claimed, m.close(), now=m.at(2))).refused == [claimed.fence]
    assert await m.state_of(store, claimed.id) == "parked·held"
    evidence = await store.rows("SELECT message_id, kind, subject, reference, at FROM redrive.evidence", [])
    assert evidence == [(claimed.id, "late_answer", "attempt 1", "ref-1", m.at(2))]
    assert await m.conserved(store)


@pytest.mark.req("G-14")
async def test_elsewhere_a_late_success_is_kept_and_changes_nothing(store: PostgresStore) -> None:
    await register(store)
    claimed = await lost(store)
    await m.settle(store, claimed, m.close(), now=m.at(2))
    assert await m.state_of(store, claimed.id) == "pending"
    assert await store.rows("SELECT count(*) FROM redrive.evidence", []) == [(0,)]
    assert [one.reference for one in (await show_message(store, claimed.id)).late_answers] == ["ref-1"]


@pytest.mark.parametrize("answer", [m.retry(), m.park(), m.advance(), m.close(closed=Closed.CANCELLED)], ids=str)
async def test_an_outcome_of_a_message_with_evidence_holds_it(store: PostgresStore, answer: Settlement) -> None:
    id, other = await m.enqueue(store), await m.enqueue(store)
    taken = (await m.claim_all(store)).attempts
    await add_evidence(store, id, m.at(1))
    assert await m.state_of(store, id) == "leased"
    await store.settle(m.WORKER, [m.outcome(attempt, answer) for attempt in taken], now=m.at(2))
    row = await m.row(store, "parked", id)
    assert (row["reason"], row["error_class"], row["halts"]) == ("held", "LATE_SUCCESS", True)
    assert row["in_doubt_since"] is not None
    assert await m.state_of(store, other) != "parked·held"  # one beside it is settled as it was answered
    assert await m.conserved(store)


@pytest.mark.parametrize("act", ["requeue", "deny", "discard", "skip", "cancel"])
@pytest.mark.parametrize("state", ["dead", "held", "pending"])
async def test_every_act_but_confirm_refuses_what_has_evidence(store: PostgresStore, act: str, state: str) -> None:
    """Also where it could not be held at once, because another transaction had the row."""
    id = await m.enqueue(store, order_by="customer:1")
    if state != "pending":
        await m.settle(store, await m.claim(store), m.park(ParkReason(state)))
    async with store.connection() as other, other.transaction():
        await other.execute("SELECT 1 FROM redrive.lane FOR UPDATE")
        await add_evidence(store, id)
    before = await picture(store, id)
    fits = {"skip"} | ({"cancel"} if state == "pending" else {"requeue", "deny", "discard"})
    if act == "skip":
        with pytest.raises(ActRefused, match="ref-7"):
            await store.skip("default", "customer:1", **ACT)
    elif act in fits:
        with pytest.raises(ActRefused, match="ref-7") as refused:
            await getattr(store, act)(id, **ACT)
        assert refused.value.next == f"redrive held confirm {id} --reference ref-7"
    assert await picture(store, id) == before


@pytest.mark.req("P-12")
async def test_skip_confirm_and_cancel_of_money_take_two_people(store: PostgresStore) -> None:
    await register(store, money=[m.DESTINATION])
    waiting = await m.enqueue(store, order_by="a")
    held = await m.enqueue(store, order_by="b")
    for attempt in (await m.claim_all(store)).attempts:
        settlement = m.park(ParkReason.HELD) if attempt.id == held else m.retry(delay_seconds=3600)
        await m.settle(store, attempt, settlement)
    for _ in range(2):
        with pytest.raises(ActRefused, match="second person"):
            await store.cancel(waiting, **ACT)
        for key in ("a", "b"):
            with pytest.raises(ActRefused, match="second person"):
                await store.skip("default", key, **ACT)
        with pytest.raises(ActRefused, match="second person"):
            await store.confirm(held, **ACT, reference="ref-1")
    assert (await m.state_of(store, waiting), await m.state_of(store, held)) == ("pending", "parked·held")
    await store.skip("default", "a", **GRACE)
    await store.confirm(held, **GRACE, reference="ref-1")
    assert (await m.state_of(store, waiting), await m.state_of(store, held)) == ("skipped", "delivered")


@pytest.mark.req("P-12")
async def test_a_requeue_of_money_cannot_name_another_stage(store: PostgresStore) -> None:
    await register(store, money=[m.DESTINATION])
    id = await dead(store)
    with pytest.raises(ActRefused, match="one stage"):
        await store.requeue(id, **ACT, stage="second")
    assert await m.state_of(store, id) == "parked·dead"


@pytest.mark.req("G-13")
async def test_a_denied_message_is_asked_about_first(store: PostgresStore) -> None:
    await register(store, in_doubt={m.DESTINATION: "lookup"})
    id = await m.enqueue(store)
    await m.settle(store, await m.claim(store), m.park(ParkReason.HELD))
    await store.deny(id, **ACT, now=m.at(1))
    attempt = await m.claim(store, now=m.at(2))
    assert (attempt.in_doubt_since, attempt.earlier[-1].verb) == (m.START, "deny")
