"""How much a relay asks for, and of which level (ruling 19): bounded, split 6:3:1, nobody starves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.message import LEVELS
from redrive.ports import ClaimRequest
from redrive.relay.claiming.capacity import Capacity, claim_requests, looked_everywhere, note_quiet

pytestmark = [pytest.mark.req("G-09"), pytest.mark.req("G-24")]

FULL: Mapping[int, int] = dict.fromkeys(LEVELS, 1_000_000)


def ask(capacity: Capacity, *, claim_max: int = 500, horizon_seconds: float = 0.5) -> dict[int, int]:
    """Level to room, as one claim would ask for it."""
    asked = claim_requests([capacity], claim_max=claim_max, horizon_seconds=horizon_seconds)
    assert {room.destination for room in asked} <= {capacity.destination}
    return {room.level: room.room for room in asked}


def look(capacity: Capacity, waiting: Mapping[int, int], *, claim_max: int = 500) -> dict[int, int]:
    """One claim at a database where so much waits per level: what it takes; the demand remembers what was short."""
    asked = claim_requests([capacity], claim_max=claim_max, horizon_seconds=0.5)
    taken = {room.level: min(room.room, waiting.get(room.level, 0)) for room in asked}
    note_quiet(capacity, asked, taken)
    return {level: count for level, count in taken.items() if count}


@given(
    concurrency=st.integers(1, 1000),
    claim_max=st.integers(1, 5000),
    waiting=st.integers(0, 6000),
    running=st.integers(0, 1000),
    latency_seconds=st.none() | st.floats(0, 1e6),
    horizon_seconds=st.floats(0, 10),
    quiet=st.sets(st.sampled_from(LEVELS)),
)
def test_a_claim_never_asks_for_more_than_what_is_missing_to_the_target(
    concurrency: int,
    claim_max: int,
    waiting: int,
    running: int,
    latency_seconds: float | None,
    horizon_seconds: float,
    quiet: set[int],
) -> None:
    capacity = Capacity("shop", concurrency, waiting, running, latency_seconds, set(quiet))
    target = capacity.target(claim_max=claim_max, horizon_seconds=horizon_seconds)
    asked = ask(capacity, claim_max=claim_max, horizon_seconds=horizon_seconds)
    assert 1 <= target <= claim_max
    assert all(room >= 1 for room in asked.values())
    assert waiting + running + sum(asked.values()) <= max(target, waiting + running)


@given(st.integers(3, 5000), st.sets(st.sampled_from(LEVELS)))
def test_a_room_is_used_up_and_every_level_has_a_part_of_it(room: int, quiet: set[int]) -> None:
    asked = ask(Capacity("shop", room, quiet=set(quiet)), claim_max=room)
    assert sum(asked.values()) == room
    assert set(asked) == set(LEVELS)


@pytest.mark.parametrize(("room", "expected"), [(10, (6, 3, 1)), (100, (60, 30, 10)), (500, (300, 150, 50))])
def test_room_is_split_six_three_one(room: int, expected: tuple[int, int, int]) -> None:
    assert tuple(ask(Capacity("shop", room)).values()) == expected


@pytest.mark.parametrize("concurrency", [1, 2, 3, 4, 7, 10, 50])
def test_no_level_starves_while_all_are_full(concurrency: int) -> None:
    """Over many claims every level gets about its share, also where one claim has room for a single message."""
    capacity = Capacity("shop", concurrency)
    taken: Counter[int] = Counter()
    for _ in range(100):
        taken.update(look(capacity, FULL))
    total = sum(taken.values())
    assert total == 100 * concurrency
    assert taken[0] >= taken[1] >= taken[2]
    assert taken[2] >= total / 10 - 1


@pytest.mark.parametrize("only", LEVELS)
@pytest.mark.parametrize("concurrency", [1, 2, 3, 10, 100])
def test_what_quiet_levels_leave_goes_to_the_others(concurrency: int, only: int) -> None:
    """A queue of one level alone is claimed at nearly full width after the first few looks."""
    capacity = Capacity("shop", concurrency)
    for _ in range(10):
        look(capacity, {only: 1_000_000})
    taken = sum(sum(look(capacity, {only: 1_000_000}).values()) for _ in range(20))
    assert taken >= 20 * min(max(concurrency - 2, 0.1), 0.8 * concurrency)


def test_a_level_that_was_quiet_is_looked_at_again_and_gets_its_share_back() -> None:
    capacity = Capacity("shop", 100)
    look(capacity, {1: 1_000_000})
    assert capacity.quiet == {0, 2}
    looks = [look(capacity, FULL) for _ in range(3)]
    assert looks[-1] == {0: 60, 1: 30, 2: 10}


@given(
    concurrency=st.sampled_from([1, 2, 3, 10]),
    before=st.lists(st.dictionaries(st.sampled_from(LEVELS), st.integers(1, 20)), max_size=50),
    only=st.sampled_from(LEVELS),
)
def test_a_few_looks_in_a_row_find_a_message_of_any_level(
    concurrency: int, before: list[dict[int, int]], only: int
) -> None:
    """However little room there is, and whatever was seen before: a relay goes idle after having looked everywhere."""
    capacity = Capacity("shop", concurrency)
    for waiting in before:
        look(capacity, waiting)
    for looks in range(1, 10):
        if look(capacity, {only: 1}):
            return
        assert looks < 3 * len(LEVELS), "looked past it for ever"
        if looked_everywhere(capacity):
            capacity.quiet.clear()  # as the next claim does
    raise AssertionError("the relay went idle without having seen it")


def test_an_idle_destination_is_looked_at_in_every_level_before_a_pause() -> None:
    capacity = Capacity("shop", 1)
    seen = []
    while not looked_everywhere(capacity):
        seen += list(ask(capacity))
        note_quiet(capacity, [ClaimRequest("shop", seen[-1], 1)], {})
    assert sorted(seen) == list(LEVELS)


def test_quiet_is_remembered_of_the_levels_that_were_asked() -> None:
    capacity = Capacity("shop", 10, quiet={2})
    note_quiet(capacity, [ClaimRequest("shop", 0, 6), ClaimRequest("shop", 1, 3)], {0: 6, 1: 2})
    assert capacity.quiet == {1, 2}
    note_quiet(capacity, [ClaimRequest("shop", 1, 1), ClaimRequest("shop", 2, 1)], {1: 1, 2: 1})
    assert capacity.quiet == set()


def test_before_the_first_latency_only_the_slots_are_filled() -> None:
    capacity = Capacity("shop", 10)
    assert capacity.target(claim_max=500, horizon_seconds=0.5) == 10
    assert capacity.target(claim_max=4, horizon_seconds=0.5) == 4


@pytest.mark.parametrize(
    ("latency_seconds", "expected"),
    [(0.5, 20), (0.05, 110), (5.0, 11), (0.0, 500), (1e-9, 500), (1e6, 10)],
)
def test_the_target_is_the_slots_and_what_they_work_off_within_the_horizon(
    latency_seconds: float, expected: int
) -> None:
    capacity = Capacity("shop", 10, latency_seconds=latency_seconds)
    assert capacity.target(claim_max=500, horizon_seconds=0.5) == expected


@pytest.mark.parametrize(
    ("waiting", "running", "expected"),
    [
        (0, 0, 20),  # idle: all of it
        (0, 9, 11),  # a slot stands idle: ask, however little is free
        (0, 10, 10),  # busy, half of the target free
        (1, 10, 0),  # busy, and less than half free: a small claim costs as much as a large one
        (10, 10, 0),
        (30, 10, 0),  # more in hand than wanted
    ],
)
def test_a_claim_waits_until_it_is_worth_its_round_trip(waiting: int, running: int, expected: int) -> None:
    capacity = Capacity("shop", 10, waiting, running, latency_seconds=0.5)
    assert capacity.room(claim_max=500, horizon_seconds=0.5) == expected


def test_latency_is_a_moving_average_that_starts_at_the_first_one_seen() -> None:
    capacity = Capacity("shop", 10)
    capacity.note_latency(1.0)
    assert capacity.latency_seconds == 1.0
    capacity.note_latency(0.0)
    assert capacity.latency_seconds == pytest.approx(0.9)


def test_destinations_without_room_are_not_asked_for() -> None:
    busy, idle = Capacity("busy", 1, running=1), Capacity("idle", 10)
    assert {room.destination for room in claim_requests([busy, idle], claim_max=500, horizon_seconds=0.5)} == {"idle"}


@given(
    capacities=st.lists(st.tuples(st.integers(1, 1000), st.none() | st.floats(0, 10)), min_size=1, max_size=40),
    claim_max=st.integers(1, 5000),
)
def test_one_claim_over_many_destinations_is_no_larger_than_one_over_a_single_one(
    capacities: list[tuple[int, float | None]], claim_max: int
) -> None:
    """What each wants is cut down in proportion, but to no less than one: nobody is left out."""
    many = [Capacity(f"d{n}", width, latency_seconds=seconds) for n, (width, seconds) in enumerate(capacities)]
    wanted = {capacity.destination: capacity.room(claim_max=claim_max, horizon_seconds=0.5) for capacity in many}
    asked: Counter[str] = Counter()
    for room in claim_requests(many, claim_max=claim_max, horizon_seconds=0.5):
        asked[room.destination] += room.room
    assert set(asked) == set(wanted)
    assert all(1 <= asked[name] <= wanted[name] for name in wanted)
    assert sum(count for count in asked.values() if count > 1) <= claim_max


def test_destinations_that_want_the_same_get_the_same_part_of_a_claim() -> None:
    asked: Counter[str] = Counter()
    for room in claim_requests([Capacity(f"d{n}", 500) for n in range(20)], claim_max=500, horizon_seconds=0.5):
        asked[room.destination] += room.room
    assert asked == Counter({f"d{n}": 25 for n in range(20)})


@pytest.mark.req("G-25")
@given(latency_seconds=st.none() | st.floats(0, 1e6), waiting=st.integers(0, 20))
def test_one_with_limits_claims_nothing_ahead_of_its_slots(latency_seconds: float | None, waiting: int) -> None:
    capacity = Capacity("shop", 10, waiting=waiting, latency_seconds=latency_seconds, ahead=False)
    assert capacity.target(claim_max=500, horizon_seconds=10) == 10
    assert waiting + sum(ask(capacity).values()) <= max(10, waiting)
