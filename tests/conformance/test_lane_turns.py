"""Numbers of ordering keys, and whose turn it is where there is not room for all."""

from __future__ import annotations

import pytest

from redrive.errors import KeyReused
from redrive.message import NewMessage
from redrive.ports import ClaimRequest
from tests.conformance.steps import (
    ALICE,
    LEASE_SECONDS,
    MAIL,
    T0,
    at,
    claim,
    claim_one,
    deliver,
    enqueue,
    enqueue_lane,
    order,
)
from tests.conformance.subjects import Subject

pytestmark = pytest.mark.req("G-07")


def sequence_of(store: Subject, *, key: str | None = None, payload: int = 1, **values: str) -> int | None:
    return store.enqueue(NewMessage(MAIL, payload, order_by="k", key=key, **values), now=T0).sequence  # type: ignore[arg-type]


async def test_every_key_is_numbered_from_one_without_a_gap_over_all_destinations(store: Subject) -> None:
    messages = [("mail", "a"), ("mail", "b"), ("bank", "a"), ("mail", None), ("bank", "a"), ("bank", "b")]
    receipts = [store.enqueue(NewMessage(to, 1, order_by=order_by), now=T0) for to, order_by in messages]
    assert [receipt.sequence for receipt in receipts] == [1, 1, 2, None, 3, 2]


async def test_ordering_keys_belong_to_their_tenant(store: Subject) -> None:
    assert [sequence_of(store, tenant=tenant) for tenant in ("a", "b", "a")] == [1, 1, 2]
    assert sorted(a.tenant for a in await claim(store)) == ["a", "b"]


@pytest.mark.req("G-02")
async def test_a_duplicate_takes_no_number_and_tells_the_first_one(store: Subject) -> None:
    assert [sequence_of(store, key=key) for key in ("x", "y", "x", "y", "z")] == [1, 2, 1, 2, 3]
    with pytest.raises(KeyReused):
        sequence_of(store, key="x", payload=2)
    assert sequence_of(store, key="x", payload=2, on_other_payload="first_wins") == 1
    assert sequence_of(store) == 4


@pytest.mark.req("G-26")
async def test_the_same_content_under_another_ordering_key_is_other_content(store: Subject) -> None:
    sequence_of(store, key="x")
    for order_by in ("other", None):
        with pytest.raises(KeyReused):
            store.enqueue(NewMessage(MAIL, 1, key="x", order_by=order_by), now=T0)


async def test_a_claim_says_which_message_of_which_key_it_is(store: Subject) -> None:
    enqueue(store)
    enqueue_lane(store, 1, key="k")
    assert {(a.order_by, a.sequence) for a in await claim(store)} == {(None, None), ("k", 1)}


# turns


async def test_the_key_that_waits_longest_goes_first(store: Subject) -> None:
    for seconds, key in enumerate("cab"):
        enqueue_lane(store, 1, key=key, now=at(seconds))
    taken = [await claim_one(store, now=at(9), room=1) for _ in range(3)]
    assert [attempt.order_by for attempt in taken] == ["c", "a", "b"]


async def test_a_key_that_had_its_turn_goes_behind_those_that_wait(store: Subject) -> None:
    """However old its messages are. All are known when it is claimed, so that nothing of its past is left over."""
    enqueue_lane(store, 3, key="long")
    first = await claim_one(store, now=at(1))
    enqueue_lane(store, 1, key="young", now=at(2))
    await deliver(store, first, now=at(3))
    assert order(await claim(store, now=at(4), room=1)) == [("young", 1)]
    assert order(await claim(store, now=at(4), room=1)) == [("long", 2)]


async def test_a_key_whose_place_another_took_is_not_forgotten(store: Subject) -> None:
    """A claim may come upon a key while it looks for another destination, and find it due there."""
    enqueue(store, order_by="old")
    enqueue(store, order_by="old", destination="bank")
    head = await claim_one(store)
    enqueue(store, order_by="young", now=at(1))
    await store.hand_back(ALICE, [head.fence], now=at(2))
    claim_requests = [ClaimRequest(MAIL, 1, 1), ClaimRequest("bank", 1, 1)]
    taken = [await store.claim(ALICE, claim_requests, lease_seconds=LEASE_SECONDS, now=at(3)) for _ in range(2)]
    assert order([attempt for claimed in taken for attempt in claimed.attempts]) == [("old", 1), ("young", 1)]


async def test_keys_that_are_blocked_take_nobodys_room(store: Subject) -> None:
    for number in range(20):
        enqueue_lane(store, 3, key=f"blocked-{number:02}")
    assert len(await claim(store)) == 20
    for key in "ab":
        enqueue_lane(store, 2, key=key, now=at(1))
    assert order(await claim(store, now=at(2), room=2)) == [("a", 1), ("b", 1)]


# lanes and unordered messages


async def shares(store: Subject, *, lanes: int, others: int, room: int, lanes_first: bool = True) -> tuple[int, int]:
    """How many of each kind one claim takes."""
    for number in range(lanes):
        enqueue_lane(store, 2, key=f"k-{number}", now=at(0 if lanes_first else 1))
    for _ in range(others):
        enqueue(store, now=at(1 if lanes_first else 0))
    claimed = await store.claim(ALICE, [ClaimRequest(MAIL, 1, room)], lease_seconds=LEASE_SECONDS, now=at(2))
    of_lanes = sum(attempt.order_by is not None for attempt in claimed.attempts)
    return of_lanes, len(claimed.attempts) - of_lanes


@pytest.mark.parametrize(
    ("lanes", "others", "room", "expected"),
    [
        (9, 9, 6, (3, 3)),
        (9, 0, 6, (6, 0)),
        (0, 9, 6, (0, 6)),
        (2, 9, 6, (2, 4)),
        (9, 2, 6, (4, 2)),
        (1, 1, 6, (1, 1)),
        (9, 9, 100, (9, 9)),
    ],
)
async def test_ordered_and_unordered_messages_share_a_room_and_what_one_leaves_is_for_the_other(
    store: Subject, lanes: int, others: int, room: int, expected: tuple[int, int]
) -> None:
    assert await shares(store, lanes=lanes, others=others, room=room) == expected


@pytest.mark.parametrize("room", [1, 3])
@pytest.mark.parametrize("lanes_first", [True, False])
async def test_the_odd_place_is_for_whoever_waits_longer(store: Subject, room: int, lanes_first: bool) -> None:
    expected = (room // 2 + 1, room // 2) if lanes_first else (room // 2, room // 2 + 1)
    assert await shares(store, lanes=5, others=5, room=room, lanes_first=lanes_first) == expected


async def test_an_expired_head_takes_a_place_in_the_room(store: Subject) -> None:
    enqueue(store, order_by="a", expires_at=at(1))
    enqueue_lane(store, 1, key="b", now=at(1))
    claimed = await store.claim(ALICE, [ClaimRequest(MAIL, 1, 1)], lease_seconds=LEASE_SECONDS, now=at(2))
    assert (claimed.attempts, claimed.expired) == ([], 1)
    assert order(await claim(store, now=at(2), room=1)) == [("b", 1)]
