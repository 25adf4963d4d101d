"""The bug breaker (G-10): ten unclassified exceptions in a row on different messages, no success between."""

from __future__ import annotations

from uuid import UUID

import pytest

from redrive.answers import RETURN_INVALID
from redrive.relay.backpressure.bug_breaker import BUGS_IN_A_ROW, BugBreaker

pytestmark = pytest.mark.req("G-10")


def message(number: int) -> UUID:
    return UUID(int=number)


def test_the_tenth_different_message_in_a_row_stops_the_line() -> None:
    breaker = BugBreaker()
    assert BUGS_IN_A_ROW == 10
    assert [breaker.saw_bug(message(n)) for n in range(10)] == [False] * 9 + [True]


def test_a_success_between_starts_the_count_again() -> None:
    breaker = BugBreaker()
    for n in range(9):
        breaker.saw_bug(message(n))
    breaker.saw_success()
    assert [breaker.saw_bug(message(n)) for n in range(10)] == [False] * 9 + [True]


def test_the_same_message_counts_once() -> None:
    breaker = BugBreaker()
    assert not any(breaker.saw_bug(message(1)) for _ in range(50))
    assert [breaker.saw_bug(message(n)) for n in range(2, 11)] == [False] * 8 + [True]


def test_what_comes_in_after_the_tenth_does_not_stop_it_a_second_time() -> None:
    breaker = BugBreaker()
    stops = [breaker.saw_bug(message(n)) for n in range(30)]
    assert stops.count(True) == 1


def test_the_first_that_returned_nonsense_stops_the_line_and_only_the_first() -> None:
    breaker = BugBreaker()
    assert [breaker.saw_bug(message(n), RETURN_INVALID) for n in range(12)] == [True] + [False] * 11
    breaker.paused()
    assert breaker.saw_bug(message(1), RETURN_INVALID)


def test_a_success_between_does_not_excuse_a_second_pause_that_is_under_way() -> None:
    breaker = BugBreaker()
    assert breaker.saw_bug(message(1), RETURN_INVALID)
    breaker.saw_success()
    assert not breaker.saw_bug(message(2), RETURN_INVALID)
