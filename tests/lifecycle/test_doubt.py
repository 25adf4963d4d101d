"""The effect may have happened: how doubt travels, who resolves it, and what waits for a person until then."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from redrive import answers, policy
from redrive.answers import Delivered, Terminal, Unknown
from redrive.message import MessageId, ParkReason
from redrive.policy import Opening, Rules, SettlementKind
from redrive.ports import RelayInfo
from redrive.store.runtime.postgres import PostgresStore
from tests.support import messages as m
from tests.support.verbs import ACT

HOLD = Rules(in_doubt="hold", money=True)
LOOKUP = Rules(in_doubt="lookup")


async def hold_one(store: PostgresStore) -> MessageId:
    """A message whose first send timed out, at a destination that holds."""
    message_id = await m.enqueue(store)
    attempt = await m.claim(store)
    settlement = policy.decide(attempt, Unknown("READ_TIMEOUT"), HOLD, now=m.START, random=Random(1))
    await m.settle(store, attempt, settlement, now=m.at(10))
    return message_id


async def register(store: PostgresStore, *, records: bool) -> None:
    info = RelayInfo(
        worker=m.WORKER,
        name="relay",
        host="here",
        pid=1,
        version="0",
        destinations=[m.DESTINATION],
        records=[m.DESTINATION] if records else [],
    )
    await store.register(info, now=m.START)


@pytest.mark.req("G-13")
@pytest.mark.req("G-27")
async def test_timeout_at_a_destination_that_holds_waits_for_a_person(store: PostgresStore) -> None:
    message_id = await hold_one(store)
    parked = await m.row(store, "parked", message_id)
    assert (parked["reason"], parked["error_class"], parked["spent"]) == ("held", "READ_TIMEOUT", 1)
    assert parked["in_doubt_since"] is not None
    (entry,) = await store.history(message_id)
    assert (entry.settlement, entry.answer, entry.closed) == ("park", "unknown", None)


@pytest.mark.req("G-27")
async def test_confirm_closes_as_delivered_with_the_evidence(store: PostgresStore) -> None:
    message_id = await hold_one(store)
    await store.confirm(message_id, **ACT, reference="bank-77", now=m.at(20))
    assert await m.state_of(store, message_id) == "delivered"
    entry = (await store.history(message_id))[-1]
    assert (entry.verb, entry.closed, entry.reference) == ("confirm", "delivered", "bank-77")
    assert (entry.actor, entry.reason, entry.completed_at) == ("ada", "looked into it", m.at(20))
    assert await m.conserved(store)


@pytest.mark.req("G-27")
async def test_confirm_at_a_destination_with_record_is_recorded_and_never_sent(store: PostgresStore) -> None:
    await register(store, records=True)
    message_id = await hold_one(store)
    await store.confirm(message_id, **ACT, reference="bank-77", now=m.at(20))
    assert await m.state_of(store, message_id) == "pending"
    attempt = await m.claim(store, now=m.at(20))
    assert policy.opening(attempt, HOLD, now=m.at(20)) is Opening.RECORD
    assert attempt.kept_answer is not None
    assert answers.from_json(attempt.kept_answer) == Delivered(reference="bank-77")
    await m.settle(store, attempt, m.close(Delivered(reference="bank-77")), now=m.at(21))
    assert await m.state_of(store, message_id) == "delivered"


@pytest.mark.req("G-27")
async def test_deny_removes_the_doubt_and_sends_again(store: PostgresStore) -> None:
    message_id = await hold_one(store)
    await store.deny(message_id, **ACT, now=m.at(20))
    attempt = await m.claim(store, now=m.at(20))
    assert (attempt.id, attempt.in_doubt, attempt.spent, attempt.number) == (message_id, False, 0, 2)
    assert policy.opening(attempt, HOLD, now=m.at(20)) is Opening.SEND


@pytest.mark.req("G-13")
async def test_doubt_keeps_its_first_moment_through_retries(store: PostgresStore) -> None:
    await m.enqueue(store)
    await m.settle(store, await m.claim(store), m.retry(Unknown("T"), in_doubt=True), now=m.at(10))
    second = await m.claim(store, now=m.at(20))
    assert second.in_doubt_since == m.at(10)
    await m.settle(store, second, m.retry(Unknown("T"), in_doubt=True), now=m.at(30))
    assert (await m.claim(store, now=m.at(30))).in_doubt_since == m.at(10)


@pytest.mark.req("G-13")
async def test_doubt_begins_anew_once_a_lookup_has_cleared_it(store: PostgresStore) -> None:
    await m.enqueue(store)
    await m.settle(store, await m.claim(store), m.retry(Unknown("T"), in_doubt=True), now=m.at(10))
    second = await m.claim(store, now=m.at(20))
    absent = replace(second, in_doubt_since=None)
    await m.settle(store, absent, m.retry(Unknown("T"), in_doubt=True), now=m.at(30))
    assert (await m.claim(store, now=m.at(30))).in_doubt_since == m.at(30)


@pytest.mark.req("G-13")
async def test_answer_that_resolves_the_doubt_leaves_none(store: PostgresStore) -> None:
    message_id = await m.enqueue(store)
    await m.settle(store, await m.claim(store), m.retry(Unknown("T"), in_doubt=True), now=m.at(10))
    await m.settle(store, await m.claim(store, now=m.at(10)), m.retry(), now=m.at(20))
    assert (await m.row(store, "pending", message_id))["in_doubt_since"] is None
    flags = await store.rows("SELECT in_doubt FROM redrive.attempt ORDER BY attempt", [])
    assert flags == [(True,), (False,)]


@pytest.mark.req("G-10")
async def test_dead_letter_in_doubt_is_looked_up_after_a_requeue(store: PostgresStore) -> None:
    message_id = await m.enqueue(store)
    attempt = await m.claim(store)
    answer = Unknown("UNCLASSIFIED", bug=True)
    settlement = policy.decide(attempt, answer, LOOKUP, now=m.START, random=Random(1))
    assert settlement.kind is SettlementKind.PARK
    await m.settle(store, attempt, settlement, now=m.at(10))
    assert await m.state_of(store, message_id) == "parked·dead"
    await store.requeue(message_id, **ACT, now=m.at(20))
    again = await m.claim(store, now=m.at(20))
    assert policy.opening(again, LOOKUP, now=m.at(20)) is Opening.LOOK_UP


@pytest.mark.req("G-15")
async def test_dead_letter_has_the_fields_that_a_person_needs(store: PostgresStore) -> None:
    message_id = await m.enqueue(store)
    await m.settle(store, await m.claim(store), m.retry(), now=m.at(10))
    last = await m.claim(store, now=m.at(10))
    settlement = policy.decide(last, Terminal("HTTP_422", "field missing"), HOLD, now=m.START, random=Random(1))
    await m.settle(
        store,
        last,
        settlement,
        now=m.at(50),
        text="field missing",
        stack="ValueError\n  shop/orders.py:12 in place",
        context={"request_id": "r-1", "upstream_code": "422"},
        policy_version="v1",
    )
    parked = await m.row(store, "parked", message_id)
    expected = {
        "reason": "dead",
        "error_class": "HTTP_422",
        "stage": "first",
        "last_text": "field missing",
        "last_stack": "ValueError\n  shop/orders.py:12 in place",
        "context": {"request_id": "r-1", "upstream_code": "422"},
        "attempt": 2,
        "spent": 2,
        "exhausted": False,
        "policy_version": "v1",
        "workflow": "open",
    }
    assert {name: parked[name] for name in expected} == expected
    moments = await store.rows("SELECT first_failed_at, last_failed_at, parked_at FROM redrive.parked", [])
    assert moments == [(m.at(10), m.at(50), m.at(50))]


@pytest.mark.req("G-27")
@pytest.mark.parametrize("reason", list(ParkReason))
async def test_discard_closes_whatever_the_reason(store: PostgresStore, reason: ParkReason) -> None:
    message_id = await m.enqueue(store)
    await m.settle(store, await m.claim(store), m.park(reason))
    await store.discard(message_id, **ACT, now=m.at(5))
    assert await m.state_of(store, message_id) == "discarded"
    assert (await m.claim_all(store, now=m.at(5))).attempts == []
    assert await m.conserved(store)
