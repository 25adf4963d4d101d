"""Settings of a policy: for every accepted value a rejected neighbour, and relations that must hold."""

from __future__ import annotations

import math
from typing import Any

import pytest

from redrive.errors import InvalidValue
from redrive.policy import Backoff, Policy, Rules, in_doubt_default

pytestmark = pytest.mark.req("G-19")

SMALLEST = math.ulp(0.0)
WEEK = 7 * 86_400

# field, accepted, its rejected neighbour
BACKOFF = [
    ("initial_seconds", 0, -SMALLEST),
    ("initial_seconds", 86_400, math.nextafter(86_400, math.inf)),
    ("multiplier", 1, math.nextafter(1, 0)),
    ("multiplier", 100, math.nextafter(100, math.inf)),
    ("max_seconds", WEEK, math.nextafter(WEEK, math.inf)),
    ("jitter", 0, -SMALLEST),
    ("jitter", 1, math.nextafter(1, 2)),
    ("jitter", "none", "None"),
    ("jitter", "full", "half"),
    ("initial_seconds", 1, math.nan),
    ("multiplier", 2, math.inf),
    ("max_seconds", 86_400, math.nan),
    ("jitter", 0.5, math.nan),
]
POLICY = [
    ("attempts", 1, 0),
    ("attempts", 1000, 1001),
    ("lookups", 1, 0),
    ("lookups", 1000, 1001),
    ("crashes", 1, 0),
    ("crashes", 100, 101),
    ("retry_after_max_seconds", 0, -SMALLEST),
    ("retry_after_max_seconds", 86_400, math.nextafter(86_400, math.inf)),
    ("max_age_seconds", 1, math.nextafter(1, 0)),
    ("max_age_seconds", 30 * 86_400, math.nextafter(30 * 86_400, math.inf)),
    ("max_age_seconds", 60, math.nan),
]


@pytest.mark.parametrize(("name", "accepted", "rejected"), BACKOFF)
def test_backoff_accepts_a_value_and_rejects_its_neighbour(name: str, accepted: Any, rejected: Any) -> None:
    others = {"initial_seconds": 1.0, "max_seconds": WEEK}
    assert getattr(Backoff(**{**others, name: accepted}), name) == accepted
    with pytest.raises(InvalidValue, match=name):
        Backoff(**{**others, name: rejected})


@pytest.mark.parametrize(("name", "accepted", "rejected"), POLICY)
def test_policy_accepts_a_value_and_rejects_its_neighbour(name: str, accepted: Any, rejected: Any) -> None:
    assert getattr(Policy(**{name: accepted}), name) == accepted
    with pytest.raises(InvalidValue, match=name):
        Policy(**{name: rejected})


def test_longest_delay_may_equal_the_first_but_not_be_shorter() -> None:
    assert Backoff(initial_seconds=10, max_seconds=10).max_seconds == 10
    with pytest.raises(InvalidValue, match=r"max_seconds \(9.9\) is less than initial_seconds \(10\)"):
        Backoff(initial_seconds=10, max_seconds=9.9)


def test_message_of_a_rejection_has_the_value_and_the_bound() -> None:
    with pytest.raises(InvalidValue, match="attempts is 0; it must be between 1 and 1000"):
        Policy(attempts=0)


@pytest.mark.req("G-11")
def test_default_policy_outlives_a_night() -> None:
    """Twelve attempts over about a day, full jitter taken at its mean."""
    policy = Policy()
    plain = [min(policy.backoff.initial_seconds * 3**n, policy.backoff.max_seconds) for n in range(11)]
    assert policy.attempts == 12
    assert 18 <= sum(plain) / 2 / 3600 <= 30


@pytest.mark.req("G-13")
@pytest.mark.parametrize("can_look_up", [True, False])
@pytest.mark.parametrize("money", [True, False])
@pytest.mark.parametrize("token_ttl_seconds", [None, 3600.0])
def test_default_in_doubt_asks_where_it_can_and_holds_money_without_a_token(
    can_look_up: bool, money: bool, token_ttl_seconds: float | None
) -> None:
    chosen = in_doubt_default(can_look_up=can_look_up, money=money, token_ttl_seconds=token_ttl_seconds)
    holds = money and token_ttl_seconds is None
    assert chosen == ("lookup" if can_look_up else "hold" if holds else "resend")


def test_version_of_the_rules_changes_with_every_field() -> None:
    changed = [
        Rules(),
        Rules(in_doubt="hold"),
        Rules(lookup_after_seconds=1),
        Rules(token_ttl_seconds=60),
        Rules(money=True),
        Rules(on_dead="continue"),
        Rules(has_breaker=True),
        Rules(policy=Policy(attempts=3)),
        Rules(policy=Policy(backoff=Backoff(jitter="none"))),
    ]
    assert len({rules.version for rules in changed}) == len(changed)
    assert Rules().version == Rules().version
    assert len(Rules().version) == 12
