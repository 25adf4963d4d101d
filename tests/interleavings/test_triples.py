"""Every triple of verbs in three sessions, from pending and from leased (F22).

All triples in serial order, and of their interleavings a sample by a fixed seed; `./test --full` takes half of all
orders of the steps with every single rollback from pending, `--soak` the other half and all from the others.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator

import pytest

from tests.interleavings.cases import Case, cases, serial
from tests.interleavings.driver import run_all
from tests.interleavings.verbs import CORE

pytestmark = [pytest.mark.req("G-14"), pytest.mark.req("G-24"), pytest.mark.req("G-28")]

STATES = ("pending", "leased", "leased_run_out")
SAMPLE = 1500
SEED = 22
SHARES = 4  # so that two workers end at about the same time


@pytest.mark.timeout(300)
@pytest.mark.parametrize("state", STATES)
def test_interleavings_of_three_verbs_keep_every_invariant(
    state: str, database: str, record_property: Callable[[str, object], None]
) -> None:
    tally = run_all(database, _sample(state), session_count=3)
    print(f"{state}: {tally}")
    record_property("interleavings", tally.cases)
    assert not tally.failures, tally.report()
    assert tally.cases >= len(CORE) ** 3 + SAMPLE


@pytest.mark.timeout(7200)
@pytest.mark.parametrize(
    ("state", "share"),
    [
        pytest.param(
            state, share, marks=pytest.mark.full if (state, share < 2) == ("pending", True) else pytest.mark.soak
        )
        for state in STATES
        for share in range(SHARES)
    ],
)
def test_every_interleaving_of_three_verbs_keeps_every_invariant(state: str, share: int, database: str) -> None:
    tally = run_all(database, itertools.islice(cases(state, CORE, 3), share, None, SHARES), session_count=3)
    print(f"{state}, share {share} of {SHARES}: {tally}")
    assert not tally.failures, tally.report()


def _sample(state: str) -> Iterator[Case]:
    for verbs in itertools.product(CORE, repeat=3):
        yield Case(state, verbs, (True, True, True), serial(3))
    beside = [case for case in cases(state, CORE, 3) if case.order != serial(3)]
    yield from random.Random(SEED).sample(beside, SAMPLE)
