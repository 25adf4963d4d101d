"""Delays: within [0, max], capped after the jitter, exponents clamped; Retry-After in both forms, however absurd."""

from __future__ import annotations

import math
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive import policy
from redrive.answers import Answer, Retryable, Unknown
from redrive.message import HistoryEntry
from redrive.policy import Backoff, Policy, Rules, retry_after_seconds
from tests.support import messages as m

pytestmark = pytest.mark.req("G-11")

NOW = m.START
jitters: st.SearchStrategy[Any] = st.sampled_from(["none", "full"]) | st.floats(0, 1)


@st.composite
def backoffs(draw: st.DrawFn) -> Backoff:
    longest = draw(st.floats(0, 7 * 86_400))
    return Backoff(
        initial_seconds=draw(st.floats(0, min(longest, 86_400))),
        multiplier=draw(st.floats(1, 100)),
        max_seconds=longest,
        jitter=draw(jitters),
    )


@given(backoffs(), st.integers(-5, 10**9), st.integers())
def test_delay_is_never_negative_nor_longer_than_the_longest(backoff: Backoff, failures: int, seed: int) -> None:
    delay = backoff.delay_seconds(failures, Random(seed))
    assert math.isfinite(delay)
    assert 0 <= delay <= backoff.max_seconds


@given(st.integers(1, 10**9))
def test_exponent_is_clamped_before_it_multiplies(failures: int) -> None:
    backoff = Backoff(initial_seconds=1, multiplier=100, max_seconds=3600, jitter="none")
    assert backoff.delay_seconds(failures, Random(1)) == min(100 ** min(failures - 1, 64), 3600)


@pytest.mark.parametrize(("failures", "delay"), [(0, 30), (1, 30), (2, 90), (3, 270), (8, 36_000), (10**9, 36_000)])
def test_delay_without_jitter_is_the_series_itself(failures: int, delay: float) -> None:
    assert Backoff(jitter="none").delay_seconds(failures, Random(1)) == delay


@given(st.integers())
def test_full_jitter_is_spread_between_nothing_and_the_delay(seed: int) -> None:
    backoff = Backoff(initial_seconds=100, max_seconds=100, jitter="full")
    random = Random(seed)
    delays = [backoff.delay_seconds(1, random) for _ in range(200)]
    assert all(0 <= delay <= 100 for delay in delays)
    assert min(delays) < 25
    assert max(delays) > 75


@given(st.floats(0, 1), st.integers())
def test_share_of_jitter_stays_within_its_share(share: float, seed: int) -> None:
    delay = Backoff(initial_seconds=100, max_seconds=1000, jitter=share).delay_seconds(1, Random(seed))
    assert 100 * (1 - share) - 1e-9 <= delay <= 100 * (1 + share) + 1e-9


def test_cap_comes_after_the_jitter() -> None:
    backoff = Backoff(initial_seconds=100, max_seconds=100, jitter=0.5)
    delays = [backoff.delay_seconds(1, Random(seed)) for seed in range(100)]
    assert max(delays) == 100
    assert min(delays) < 100


# Retry-After

NONSENSE: list[Any] = [
    None,
    True,
    math.nan,
    "",
    "  ",
    "soon",
    "1500ms",
    "1.5",
    "-1",
    "+5",
    "1e3",
    "0x10",
    "²",
    "٣",
    "NaN",
    "inf",
    "Wed, 21 Oct 2015 07:28:00",
    "Wed, 21 Oct 2015 07:28:00 -0000",
    "Wed, 99 Oct 2099 07:28:00 GMT",
    "Wed, 21 Oct 2099 99:99:99 GMT",
    "Wed, 21 Oct 99999 07:28:00 GMT",
    "2040-01-01T00:01:00Z",
    "\x00",
    "\ud800",
    b"5",
    [],
    {},
    ...,
]


@pytest.mark.parametrize("value", NONSENSE, ids=repr)
def test_nonsense_in_retry_after_is_ignored(value: Any) -> None:
    assert retry_after_seconds(value, now=NOW) is None


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (0, 0),
        (7, 7),
        (2.5, 2.5),
        ("7", 7),
        (" 120 ", 120),
        ("007", 7),
        (-5, 0),
        (-math.inf, 0),
        ("Sun, 01 Jan 2040 00:01:00 GMT", 60),
        ("Sun, 01 Jan 2040 01:01:00 +0100", 60),
        ("Sunday, 01-Jan-40 00:01:00 GMT", 60),
        ("Sat, 31 Dec 2039 23:59:00 GMT", 0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
    ],
)
def test_retry_after_is_read_in_both_forms(value: Any, seconds: float) -> None:
    assert retry_after_seconds(value, now=NOW) == seconds


@pytest.mark.parametrize(
    "value",
    [math.inf, 10**400, 1e308, "9" * 5000, "Fri, 31 Dec 9999 23:59:59 GMT", "Fri, 31 Dec 9999 23:59:59 -2359"],
    ids=lambda value: str(value)[:12],
)
def test_huge_retry_after_is_left_to_the_ceiling(value: Any) -> None:
    asked = retry_after_seconds(value, now=NOW)
    assert asked is not None
    assert asked > 86_400
    assert _delay(value, retry_after_max_seconds=300) == 300


@given(st.text() | st.floats() | st.integers() | st.binary() | st.none() | st.booleans())
def test_no_retry_after_can_break_a_decision(value: Any) -> None:
    asked = retry_after_seconds(value, now=NOW)
    assert asked is None or asked >= 0
    assert 0 <= _delay(value, retry_after_max_seconds=300) <= 300


@given(st.integers(0, 253_402_300_799))
def test_any_http_date_asks_for_the_time_until_then(epoch_seconds: int) -> None:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=epoch_seconds)
    asked = retry_after_seconds(format_datetime(moment, usegmt=True), now=NOW)
    assert asked == max((moment - NOW).total_seconds(), 0)


@given(st.floats(0, 400), st.floats(0, 300), st.floats(0, 500))
def test_retry_after_lengthens_the_backoff_and_never_shortens_it(asked: float, ceiling: float, own: float) -> None:
    delay = _delay(asked, retry_after_max_seconds=ceiling, initial_seconds=own)
    assert delay == max(own, min(asked, ceiling))


@pytest.mark.req("G-25")
@given(st.floats(0, 400), st.floats(0, 300), st.booleans(), st.integers(0, 1))
def test_what_a_destination_asks_for_holds_for_all_of_its_messages(
    asked: float, ceiling: float, down: bool, spent: int
) -> None:
    """Also where this one is out of budget, or free of charge."""
    rules = Rules(policy=Policy(attempts=1 + spent, retry_after_max_seconds=ceiling), has_breaker=down)
    answer = Retryable("HTTP_429", retry_after=asked, destination_down=down)
    chosen = policy.decide(m.attempt(), answer, rules, now=NOW, random=Random(1))
    assert chosen.pause_seconds == min(asked, ceiling)


@pytest.mark.req("G-25")
@pytest.mark.parametrize(
    "answer", [Retryable("HTTP_503"), Retryable("HTTP_503", retry_after="soon"), Unknown("TIMEOUT")]
)
def test_who_asks_for_no_rest_gets_none(answer: Answer) -> None:
    assert policy.decide(m.attempt(), answer, Rules(), now=NOW, random=Random(1)).pause_seconds == 0


def _delay(value: Any, *, retry_after_max_seconds: float, initial_seconds: float = 0.0) -> float:
    backoff = Backoff(initial_seconds=initial_seconds, multiplier=1, max_seconds=initial_seconds, jitter="none")
    rules = Rules(policy=Policy(backoff=backoff, retry_after_max_seconds=retry_after_max_seconds))
    answer = Retryable("HTTP_429", retry_after=value)
    return policy.decide(m.attempt(), answer, rules, now=NOW, random=Random(1)).delay_seconds


@pytest.mark.req("G-13")
@given(st.floats(0.001, 86_400), st.floats(0, 86_400))
def test_absent_too_early_waits_exactly_until_it_can_be_believed(lookup_after: float, passed: float) -> None:
    rules = Rules(in_doubt="lookup", lookup_after_seconds=lookup_after)
    now = NOW + timedelta(seconds=passed)
    instead = policy.after_absent(m.attempt(in_doubt_since=NOW), rules, now=now)
    believable = NOW + timedelta(seconds=lookup_after)
    if now >= believable:
        assert instead is None
    else:
        assert isinstance(instead, Unknown)
        assert instead.from_lookup
        assert instead.wait_seconds == (believable - now).total_seconds() > 0


@pytest.mark.req("G-13")
@pytest.mark.parametrize(("verb", "waits"), [("reap", True), ("settle", False), ("hand_back", False)])
def test_absent_is_believed_only_so_long_after_the_last_claim_that_was_lost(verb: str, waits: bool) -> None:
    """A lost claim keeps the age of an earlier doubt, but may have asked about that one and have sent anew."""
    lost: dict[str, Any] = dict.fromkeys(field.name for field in fields(HistoryEntry)) | {
        "verb": verb,
        "completed_at": NOW + timedelta(seconds=60),
    }
    attempt = m.attempt(in_doubt_since=NOW, earlier=(HistoryEntry(**lost),))
    rules = Rules(in_doubt="lookup", lookup_after_seconds=10)
    instead = policy.after_absent(attempt, rules, now=NOW + timedelta(seconds=65))
    assert isinstance(instead, Unknown) is waits
    assert policy.after_absent(attempt, rules, now=NOW + timedelta(seconds=70)) is None
