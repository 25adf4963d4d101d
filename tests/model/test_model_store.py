"""What the model store promises beyond the port: the same seed is the same run, and a copy goes its own way."""

from __future__ import annotations

from datetime import timedelta
from random import Random

import pytest

from redrive.errors import InvalidValue
from redrive.message import NewMessage, WorkerId
from redrive.policy import Settlement, SettlementKind
from redrive.ports import ClaimRequest, Outcome, Store
from tests.conformance.steps import ALICE, LEASE_SECONDS, MAIL
from tests.model_store.model import ModelStore
from tests.model_store.tables import Conservation


async def run(store: ModelStore, worker: WorkerId = ALICE) -> None:
    for payload in range(5):
        store.enqueue(NewMessage(MAIL, payload))
        store.advance(1)
    await store.claim(worker, [ClaimRequest(MAIL, 1, 3)], lease_seconds=LEASE_SECONDS)
    store.advance(60)
    await store.reap(limit=2)


async def test_the_same_seed_is_the_same_run() -> None:
    one, other, different = (ModelStore(random=Random(seed)) for seed in (7, 7, 8))
    for store in (one, other, different):
        await run(store)
    assert one.places() == other.places()
    assert one.places().keys().isdisjoint(different.places().keys())


async def test_ids_are_of_version_seven_by_the_stores_own_clock() -> None:
    store = ModelStore()
    first = store.enqueue(NewMessage(MAIL, 1)).id
    store.advance(0.001)
    second = store.enqueue(NewMessage(MAIL, 1)).id
    assert (first.version, second.version) == (7, 7)
    assert (second.int >> 80) - (first.int >> 80) == 1
    assert first.int >> 80 == store.time.timestamp() * 1000 - 1


async def test_a_copy_goes_its_own_way() -> None:
    store = ModelStore()
    await run(store)
    places, ranges = store.places(), await store.ranges()
    twin = store.copy()
    assert twin.enqueue(NewMessage(MAIL, 9)).id == store.copy().enqueue(NewMessage(MAIL, 9)).id
    await run(twin)
    assert await twin.retire(ranges[-1][0], now=ranges[-1][1] + timedelta(days=1)) == "retired"
    assert (store.places(), await store.ranges()) == (places, ranges)
    assert store.conservation() == Conservation(5, 4, 1, 0, 0)


@pytest.mark.parametrize("kind", [SettlementKind.CLOSE, SettlementKind.PARK, SettlementKind.HAND_BACK])
async def test_a_settlement_that_would_lose_the_message_is_refused(kind: SettlementKind) -> None:
    store = ModelStore()
    id = store.enqueue(NewMessage(MAIL, 1)).id
    claimed = await store.claim(ALICE, [ClaimRequest(MAIL, 1, 1)], lease_seconds=LEASE_SECONDS)
    outcome = Outcome(attempt=claimed.attempts[0], settlement=Settlement(kind=kind))
    with pytest.raises(InvalidValue):
        await store.settle(ALICE, [outcome])
    assert store.state_of(id) == "leased"


def test_the_model_is_a_store() -> None:
    store: Store = ModelStore()
    assert store is not None
