"""What a relay counts as an answer, and when it says that a destination is down (G-25, ruling 12)."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from redrive.answers import Advance, Answer, Delivered, Retryable, Terminal, Unknown
from redrive.errors import InvalidValue
from redrive.policy import Breaker
from redrive.relay.backpressure.breaker import Count, answered

pytestmark = pytest.mark.req("G-25")

ANSWERED = [
    Delivered(),
    Advance("second"),
    Terminal("HTTP_422"),
    Retryable("HTTP_503"),
    Retryable("HTTP_429", retry_after=30),
    Unknown("LOOKUP_CANNOT_TELL", from_lookup=True),
    Unknown("ABSENT_TOO_EARLY", from_lookup=True, wait_seconds=5),
]
NOT_ANSWERED = [
    Retryable("CONNECTION_REFUSED", destination_down=True),
    Unknown("READ_TIMEOUT"),
    Unknown("TIMEOUT"),
    Unknown("HTTP_504"),
    Unknown("LOOKUP_TIMEOUT", from_lookup=True),
    Unknown("LOOKUP_FAILED", from_lookup=True),
]
NOTHING_SAID = [
    None,
    Unknown("UNCLASSIFIED", bug=True),
    Terminal("UNCLASSIFIED", bug=True),
    Unknown("CUT_OFF"),
    Unknown("CANCELLED"),
    Unknown("INTERRUPTED"),
    Unknown("COMPLETE_ROLLED_BACK"),
    Retryable("VALIDATE_TIMEOUT"),
]


@pytest.mark.parametrize("answer", ANSWERED, ids=repr)
def test_whatever_it_said_it_is_up(answer: Answer) -> None:
    assert answered(answer, Breaker()) is True


@pytest.mark.parametrize("answer", NOT_ANSWERED, ids=repr)
def test_whoever_heard_nothing_found_it_down(answer: Answer) -> None:
    assert answered(answer, Breaker()) is False


@pytest.mark.parametrize("answer", NOTHING_SAID, ids=repr)
def test_what_we_did_ourselves_says_nothing_about_it(answer: Answer | None) -> None:
    assert answered(answer, Breaker(codes={"CUT_OFF", "UNCLASSIFIED"})) is None


@pytest.mark.parametrize("answer", [Retryable("HTTP_503"), Terminal("HTTP_503")], ids=repr)
def test_a_code_can_be_declared_to_be_no_answer(answer: Answer) -> None:
    assert answered(answer, Breaker(codes={"HTTP_503"})) is False
    assert answered(answer, Breaker(codes={"HTTP_500"})) is True


def looks(count: Count, *sends: bool) -> list[bool]:
    """Whether it shall open, after each."""
    return [count.saw(answered=send) for send in sends]


def test_so_many_in_a_row_open_it() -> None:
    assert looks(Count(Breaker(failures=3)), False, False, False) == [False, False, True]


def test_an_answer_between_starts_the_row_again() -> None:
    assert looks(Count(Breaker(failures=3)), False, False, True, False, False, False) == [False] * 5 + [True]


def test_a_share_of_the_last_ones_opens_it_once_there_were_that_many() -> None:
    count = Count(Breaker(failures=100, share=0.5, window=4))
    assert looks(count, False, True, False) == [False, False, False], "too few to say"
    assert looks(count, False) == [True]


def test_what_is_out_of_the_window_counts_no_more() -> None:
    count = Count(Breaker(failures=100, share=0.5, window=4))
    assert looks(count, False, False, True, True, True, False) == [False] * 6
    assert looks(count, True, False) == [False, True]


def test_the_share_is_that_of_the_window_whatever_came_before() -> None:
    """Against a count that keeps everything."""
    for sends in product([True, False], repeat=9):
        count, seen = Count(Breaker(failures=100, share=0.6, window=5)), []
        for send in sends:
            seen.append(send)
            last = seen[-5:]
            expected = not send and len(last) == 5 and last.count(False) >= 0.6 * 5
            assert count.saw(answered=send) is expected


def test_after_it_opened_it_counts_from_the_beginning() -> None:
    count = Count(Breaker(failures=2, share=0.5, window=2))
    assert looks(count, False, False) == [False, True]
    count.start_again()
    assert looks(count, False, False) == [False, True]


@pytest.mark.parametrize(
    ("field", "good", "bad"),
    [
        ("failures", 1, 0),
        ("failures", 1000, 1001),
        ("share", 0.01, 0.009),
        ("share", 1, 1.01),
        ("window", 1, 0),
        ("window", 10_000, 10_001),
        ("cool_off_seconds", 0.1, 0.09),
        ("cool_off_seconds", 300, 301),
        ("cool_off_max_seconds", 5, 4.9),
        ("cool_off_max_seconds", 86_400, 86_401),
        ("codes", {"HTTP_503"}, "HTTP_503"),
    ],
)
def test_each_bound_of_a_breaker_is_kept(field: str, good: Any, bad: Any) -> None:
    assert getattr(Breaker(**{field: good}), field) == good
    with pytest.raises(InvalidValue):
        Breaker(**{field: bad})
