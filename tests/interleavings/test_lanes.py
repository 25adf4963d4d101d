"""Every pair of verbs of a lane in two sessions and every triple in three, in every order of their steps (LANES.md)."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from tests.interleavings.cases import Case, cases
from tests.interleavings.driver import Tally, run_all
from tests.interleavings.lane_oracle import broken
from tests.interleavings.lane_verbs import ALL_VERBS, LANE, STATES, TRIPLES, VERBS

pytestmark = [pytest.mark.req("G-07"), pytest.mark.req("G-14")]


SAMPLE = 250
SEED = 7


def _run(database: str, chosen: Iterator[Case], *, session_count: int) -> Tally:
    tally = run_all(database, chosen, session_count=session_count, subject=LANE, broken=broken)
    print(tally)
    return tally


@pytest.mark.timeout(300)
@pytest.mark.parametrize("state", STATES)
def test_every_interleaving_of_two_verbs_of_a_lane_keeps_its_order_and_forgets_nothing(
    state: str, database: str, record_property: Callable[[str, object], None]
) -> None:
    tally = _run(database, cases(state, VERBS[state], 2), session_count=2)
    record_property("interleavings", tally.cases)
    assert not tally.failures, tally.report()
    assert tally.cases >= 7 * len(VERBS[state]) ** 2


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("state", STATES)
def test_every_interleaving_of_any_two_verbs_of_a_lane_keeps_its_order_and_forgets_nothing(
    state: str, database: str
) -> None:
    tally = _run(database, cases(state, ALL_VERBS, 2), session_count=2)
    assert not tally.failures, tally.report()
    assert tally.cases >= 7 * len(ALL_VERBS) ** 2


@pytest.mark.timeout(300)
@pytest.mark.parametrize("state", TRIPLES)
def test_interleavings_of_three_verbs_of_a_lane_keep_its_order_and_forget_nothing(
    state: str, database: str, record_property: Callable[[str, object], None]
) -> None:
    everything = list(cases(state, TRIPLES[state], 3))
    tally = _run(database, iter(random.Random(SEED).sample(everything, SAMPLE)), session_count=3)
    record_property("interleavings", tally.cases)
    assert not tally.failures, tally.report()
    assert tally.cases >= SAMPLE


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("state", TRIPLES)
def test_every_interleaving_of_three_verbs_of_a_lane_keeps_its_order_and_forgets_nothing(
    state: str, database: str
) -> None:
    tally = _run(database, cases(state, TRIPLES[state], 3), session_count=3)
    assert not tally.failures, tally.report()
