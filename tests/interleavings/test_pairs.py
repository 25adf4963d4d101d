"""Every pair of verbs, from every state, in every order of the steps of two sessions (F22, I14 to I16).

The core verbs and those that can do something in the state; the complete run tries every verb everywhere.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.interleavings.cases import cases
from tests.interleavings.driver import Tally, run_all
from tests.interleavings.verbs import ALL_VERBS, CORE, EXTRAS, STATES

pytestmark = [pytest.mark.req("G-14"), pytest.mark.req("G-24"), pytest.mark.req("G-28")]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("state", STATES)
def test_every_interleaving_of_two_verbs_keeps_every_invariant(
    state: str, database: str, record_property: Callable[[str, object], None]
) -> None:
    tally = run_all(database, cases(state, (*CORE, *EXTRAS[state]), 2), session_count=2)
    print(f"{state}: {tally}")
    record_property("interleavings", tally.cases)
    assert not tally.failures, tally.report()
    assert tally.cases >= 7 * len(CORE) ** 2
    _assert_that_the_state_was_met(state, tally)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("state", STATES)
def test_every_interleaving_of_any_two_verbs_keeps_every_invariant(state: str, database: str) -> None:
    tally = run_all(database, cases(state, ALL_VERBS, 2), session_count=2)
    print(f"{state}, all verbs: {tally}")
    assert not tally.failures, tally.report()
    assert tally.cases >= 7 * len(ALL_VERBS) ** 2


# An answer that only this state gives; without it the cases would have begun elsewhere and proved nothing.
_SIGN = {
    "pending": ("claim", "1"),
    "pending_future": ("cancel", "cancelled"),
    "pending_expired": ("claim", "expired"),
    "suspect": ("claim", "2"),
    "leased": ("deliver", "settled"),
    "leased_run_out": ("reap", "1"),
    "dead": ("requeue", "done"),
    "held": ("deny", "done"),
    "unrecorded": ("repair", "done"),
    "closed": ("deliver", "repeated"),
}


def _assert_that_the_state_was_met(state: str, tally: Tally) -> None:
    assert tally.answers[_SIGN[state]] > 0, f"{_SIGN[state]} never occurred: {tally.answers}"
