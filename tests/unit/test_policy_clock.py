"""What the rules see of time after the database's clock has jumped: what has really passed (G-33)."""

from __future__ import annotations

from datetime import datetime, timedelta
from random import Random
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive import policy
from redrive.answers import Retryable, Unknown
from redrive.message import Attempt
from redrive.policy import ClockJump, Policy, Rules, Settlement
from tests.support import messages as m

pytestmark = pytest.mark.req("G-33")

HOUR: Final = 3600.0
LOOK: Final = 5.0  # seconds between two looks at the clock
ASKED: Final = Rules(in_doubt="lookup", lookup_after_seconds=90.0, money=True, token_ttl_seconds=6 * HOUR)


def seen(attempt: Attempt, offset: float, *, noticed: datetime, now: datetime) -> Attempt:
    return policy.by_present_clock(attempt, [ClockJump(noticed, offset, LOOK)], now=now)


def doubted(at: datetime, **values: Any) -> Attempt:
    return m.attempt(in_doubt_since=at, spent=1, created_at=at - timedelta(seconds=60), **values)


def believed(attempt: Attempt, now: datetime) -> bool:
    answer = policy.after_absent(attempt, ASKED, now=now)
    return not (isinstance(answer, Unknown) and answer.code == "ABSENT_TOO_EARLY")


def test_a_clock_that_was_set_forward_makes_absent_no_older() -> None:
    attempt, noticed = doubted(m.at(0)), m.at(3 * HOUR + 10)  # ten seconds after the doubt
    soon, later = noticed + timedelta(seconds=79), noticed + timedelta(seconds=81)
    assert believed(attempt, soon), "by the clock alone it is three hours old"
    assert not believed(seen(attempt, 3 * HOUR, noticed=noticed, now=soon), soon)
    assert believed(seen(attempt, 3 * HOUR, noticed=noticed, now=later), later)


def test_a_clock_that_was_set_back_keeps_nothing_in_doubt_for_hours() -> None:
    attempt, noticed = doubted(m.at(0)), m.at(-3 * HOUR + 10)
    soon, later = noticed + timedelta(seconds=79), noticed + timedelta(seconds=81)
    assert not believed(attempt, later), "by the clock alone the doubt lies in the future"
    assert not believed(seen(attempt, -3 * HOUR, noticed=noticed, now=soon), soon)
    assert believed(seen(attempt, -3 * HOUR, noticed=noticed, now=later), later)


def test_doubt_that_is_younger_than_the_jump_is_seen_as_it_is() -> None:
    noticed = m.at(0)
    attempt = doubted(m.at(5))
    attempt = policy.by_present_clock(attempt, [ClockJump(noticed, 3 * HOUR, LOOK)], now=m.at(20))
    assert attempt.in_doubt_since == m.at(5)


def test_a_clock_that_was_set_forward_and_then_back_keeps_nothing_in_doubt_for_hours() -> None:
    """The doubt lies in the future since the second jump; the first had happened before it."""
    jumps = [ClockJump(m.at(0), -HOUR, LOOK), ClockJump(m.at(0), 3 * HOUR, LOOK)]
    now = m.at(91)
    assert believed(policy.by_present_clock(doubted(m.at(HOUR - 1)), jumps, now=now), now)


@pytest.mark.parametrize("offset", [60.0, -60.0])
def test_doubt_that_began_between_a_jump_and_its_being_noticed_is_seen_as_it_is(offset: float) -> None:
    """Set back it would be taken for older than it is, and "absent" believed; set forward, for one of the future."""
    noticed = m.at(0)
    assert seen(doubted(m.at(-2)), offset, noticed=noticed, now=m.at(20)).in_doubt_since == m.at(-2)


@given(
    jumps=st.lists(st.tuples(st.floats(0, 500), st.floats(6, 9000), st.booleans(), st.floats(0.1, 5)), max_size=5),
    ago=st.floats(0, 600),
)
def test_absent_is_never_believed_too_early_and_a_token_is_never_too_young(
    jumps: list[tuple[float, float, bool, float]], ago: float
) -> None:
    """By a true clock that never jumps. Each jump: when, how far, whether back, how long until it was noticed."""
    now, offset, happened = 600.0, 0.0, 600.0 - ago
    recorded: list[ClockJump] = []
    before = 0.0
    shown = happened
    for at, by, back, late in sorted(jumps):
        if recorded and at < before + 5:
            continue
        before, jumped = at, -by if back else by
        offset += jumped
        shown += jumped if happened >= at else 0.0
        recorded.insert(0, ClockJump(m.at(at + late + offset), jumped, late + 0.5))
    attempt = policy.by_present_clock(doubted(m.at(shown)), recorded, now=m.at(now + offset))
    assert attempt.in_doubt_since is not None
    true = m.at(happened + offset)
    slack = timedelta(milliseconds=1)
    assert true - slack <= attempt.in_doubt_since <= m.at(now + offset) + policy.MEASURED_WITHIN
    assert not recorded or (attempt.token_used_since or m.at(now + offset)) <= true + slack


@pytest.mark.parametrize(("offset", "hours"), [(3 * HOUR, 0), (-3 * HOUR, -3)])
def test_a_token_is_never_younger_than_either_clock_says(offset: float, hours: float) -> None:
    noticed = m.at(offset + 10)
    attempt = seen(doubted(m.at(0)), offset, noticed=noticed, now=noticed)
    assert attempt.token_used_since == m.at(hours * HOUR)


def test_what_is_down_is_not_given_up_because_the_clock_was_set_forward() -> None:
    rules = Rules(policy=Policy(max_age_seconds=2 * HOUR), has_breaker=True)
    answer = Retryable("DOWN", destination_down=True)
    attempt, now = m.attempt(down_since=m.at(0), spent=1), m.at(3 * HOUR + 60)
    alone = policy.decide(attempt, answer, rules, now=now, random=Random(1))
    with_jump = policy.decide(seen(attempt, 3 * HOUR, noticed=now, now=now), answer, rules, now=now, random=Random(1))
    assert (_kind(alone), _kind(with_jump)) == ("park", "retry")


def test_nothing_was_sent_of_a_message_that_is_younger_than_its_doubt_on_both_clocks() -> None:
    """Both times are of the clock as it was: which came first stays."""
    attempt = seen(doubted(m.at(0)), -3 * HOUR, noticed=m.at(-3 * HOUR + 1), now=m.at(-3 * HOUR + 1))
    assert attempt.in_doubt_since is not None
    assert attempt.created_at < attempt.in_doubt_since


def _kind(settlement: Settlement) -> str:
    return settlement.kind.value
