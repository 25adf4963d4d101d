"""What money needs of the pure decisions beside the tables of docs/states.md: one effect, or held (P-05, P-11)."""

from __future__ import annotations

from random import Random
from typing import Any, Final

import pytest

from redrive import policy
from redrive.answers import Retryable, Unknown
from redrive.policy import Opening, Rules, Settlement
from tests.support import messages as m

pytestmark = pytest.mark.req("P-05")

NOW: Final = m.at(1_000)
DOUBTED: Final = m.at(100)


def absent(*, earlier: Any = (), rules: dict[str, Any] | None = None, **attempt: Any) -> str | None:
    """The code with which it is held after a lookup that found nothing; None where it is sent."""
    declared = Rules(**{"money": True, "in_doubt": "lookup", "lookup_after_seconds": 90.0, **(rules or {})})
    chosen = policy.after_absent(
        m.attempt(in_doubt_since=DOUBTED, spent=1, earlier=earlier, **attempt), declared, now=NOW
    )
    if chosen is None:
        return None
    assert isinstance(chosen, Settlement)
    assert (chosen.park_reason, chosen.in_doubt) == ("held", True)
    return chosen.error_class


@pytest.mark.req("P-11")
@pytest.mark.parametrize("ttl", [None, 86_400.0])
def test_money_that_was_cancelled_or_expired_in_doubt_is_held_though_it_is_absent(ttl: float | None) -> None:
    rules = {"token_ttl_seconds": ttl}
    assert absent(cancel_requested=True, rules=rules) == "CANCELLED_IN_DOUBT"
    assert absent(expired=True, rules=rules) == "EXPIRED_IN_DOUBT"


@pytest.mark.req("P-11")
@pytest.mark.parametrize(("field", "closed"), [("cancel_requested", "cancelled"), ("expired", "expired")])
def test_money_in_doubt_is_closed_where_absent_is_final(field: str, closed: str) -> None:
    rules = Rules(money=True, in_doubt="lookup", lookup_after_seconds=90.0, absent_is_final=True)
    attempt = m.attempt(in_doubt_since=DOUBTED, **{field: True})
    chosen = policy.after_absent(attempt, rules, now=NOW)
    assert isinstance(chosen, Settlement)
    assert (chosen.closed, chosen.in_doubt) == (closed, False)


@pytest.mark.req("P-11")
@pytest.mark.parametrize("field", ["cancel_requested", "expired"])
def test_money_in_doubt_that_would_be_resent_is_held_when_it_is_cancelled_or_expired(field: str) -> None:
    rules = Rules(money=True, in_doubt="resend", token_ttl_seconds=86_400)
    chosen = policy.opening(m.attempt(in_doubt_since=DOUBTED, **{field: True}), rules, now=NOW)
    assert isinstance(chosen, Settlement)
    assert (chosen.park_reason, chosen.in_doubt) == ("held", True)


@pytest.mark.parametrize(("used_since", "held"), [(m.START, True), (DOUBTED, False), (None, False)])
def test_a_token_is_as_old_as_its_first_use(used_since: Any, held: bool) -> None:
    """1,000 s after the first use, 900 s after the doubt; trusted for 960 s."""
    ttl = {"token_ttl_seconds": 1_200.0}
    assert absent(token_used_since=used_since, rules=ttl) == ("TOKEN_FORGOTTEN" if held else None)
    rules = Rules(money=True, in_doubt="resend", token_ttl_seconds=ttl["token_ttl_seconds"])
    attempt = m.attempt(in_doubt_since=DOUBTED, token_used_since=used_since, spent=1)
    chosen = policy.opening(attempt, rules, now=NOW)
    assert (chosen is Opening.SEND) is not held


@pytest.mark.req("P-11")
def test_only_a_denial_after_the_last_doubt_permits_a_send_without_a_token() -> None:
    assert absent() == "ABSENT_AFTER_DOUBT"
    assert absent(earlier=(m.entry("deny", 50),)) == "ABSENT_AFTER_DOUBT"
    assert absent(earlier=(m.entry("deny", 100),)) is None
    assert absent(earlier=(m.entry("deny", 500),)) is None
    assert absent(earlier=(m.entry("deny", 500), m.entry("reap", 600))) == "ABSENT_AFTER_DOUBT"
    assert absent(earlier=(m.entry("requeue", 500),)) == "ABSENT_AFTER_DOUBT"


def test_a_denial_does_not_make_absent_believable_sooner() -> None:
    rules = Rules(money=True, in_doubt="lookup", lookup_after_seconds=901.0)
    attempt = m.attempt(in_doubt_since=DOUBTED, earlier=(m.entry("deny", 500),))
    chosen = policy.after_absent(attempt, rules, now=NOW)
    assert isinstance(chosen, Unknown)
    assert chosen.wait_seconds == 1


@pytest.mark.req("G-10")
@pytest.mark.parametrize("status", [500, 501, 503, 599])
def test_a_server_error_without_a_code_leaves_money_in_doubt(status: int) -> None:
    answer = Retryable(f"HTTP_{status}", status=status, retry_after="77")
    for money in (True, False):
        rules = Rules(money=money, in_doubt="lookup", lookup_after_seconds=90.0)
        chosen = policy.decide(m.attempt(), answer, rules, now=NOW, random=Random(1))
        assert (chosen.in_doubt, isinstance(chosen.answer, Unknown)) == (money, money)
        assert chosen.pause_seconds == 77
    coded = Retryable("UNAVAILABLE")
    rules = Rules(money=True, in_doubt="lookup", lookup_after_seconds=90.0)
    assert not policy.decide(m.attempt(), coded, rules, now=NOW, random=Random(1)).in_doubt
