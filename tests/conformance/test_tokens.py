"""The token that a destination deduplicates by: one for a seed in every database, and kept through a whole life."""

from __future__ import annotations

import pytest

from redrive.message import token
from tests.conformance.steps import (
    ACT,
    ALICE,
    BOB,
    MAIL,
    advanced,
    at,
    claim_alone,
    claim_one,
    enqueue,
    parked,
    retried,
    settle,
)
from tests.conformance.subjects import Subject

pytestmark = pytest.mark.req("P-05")
SEED = "payment:5:inv-1:k1"


async def test_without_a_seed_the_token_is_the_id(store: Subject) -> None:
    id = enqueue(store)
    assert (await claim_one(store)).token == str(id)


async def test_two_messages_of_one_seed_have_one_token_and_another_tenant_has_another(store: Subject) -> None:
    """As after a restore: the row was lost, and the producer enqueues the same again."""
    tokens = []
    for destination, tenant in (("first", "a"), ("second", "a"), ("third", "b")):
        enqueue(store, destination=destination, tenant=tenant, token_seed=SEED)
        attempt = await claim_one(store, destination=destination)
        assert attempt.token != str(attempt.id)
        tokens.append(attempt.token)
    assert tokens[0] == tokens[1] != tokens[2]


async def test_the_token_is_kept_through_retry_hand_back_crash_and_requeue(store: Subject) -> None:
    id = enqueue(store, token_seed=SEED)
    expected = token(id, 1, "first", tenant="default", seed=SEED)
    first = await claim_one(store)
    await settle(store, retried(first, in_doubt=True), now=at(1))
    second = await claim_one(store, now=at(2))
    await store.hand_back(ALICE, [second.fence], now=at(3))
    third = await claim_one(store, now=at(4))
    await store.reap(limit=1, worker=ALICE, now=at(5))
    fourth = await claim_alone(store, now=at(6))
    await settle(store, parked(fourth), worker=BOB, now=at(7))
    await store.requeue(id, **ACT, now=at(8))
    fifth = await claim_one(store, now=at(9))
    assert {attempt.token for attempt in (first, second, third, fourth, fifth)} == {expected}


async def test_each_stage_has_its_own_token_of_the_same_seed(store: Subject) -> None:
    id = enqueue(store, token_seed=SEED)
    await settle(store, advanced(await claim_one(store), "second"), now=at(1))
    attempt = await claim_one(store, now=at(2))
    assert attempt.token == token(id, 1, "second", tenant="default", seed=SEED)
    await settle(store, parked(attempt), now=at(3))
    await store.requeue(id, **ACT, stage="first", now=at(4))
    assert (await claim_one(store, now=at(5))).token == token(id, 1, "first", tenant="default", seed=SEED)


async def test_without_a_seed_each_stage_has_a_token_of_the_id(store: Subject) -> None:
    id = enqueue(store, destination=MAIL)
    await settle(store, advanced(await claim_one(store), "second"), now=at(1))
    assert (await claim_one(store, now=at(2))).token == token(id, 1, "second")
