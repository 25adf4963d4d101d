"""The taxonomy: whatever is answered under whatever rules, one legal settlement, within the budgets, doubt kept."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive import policy
from redrive.answers import Advance, Answer, Delivered, Retryable, Terminal, Unknown, clean_code
from redrive.message import Attempt, Closed, ParkReason
from redrive.policy import Backoff, Opening, Policy, Rules, Settlement, SettlementKind
from tests.support import messages as m

NOW = m.at(100_000)
codes = st.text(max_size=12)
retry_after: st.SearchStrategy[Any] = st.none() | st.floats() | st.text(max_size=12)
answers: st.SearchStrategy[Answer] = st.one_of(
    st.builds(Delivered, reference=st.none() | st.text(max_size=5)),
    st.builds(Advance, stage=st.just("second")),
    st.builds(Retryable, code=codes, retry_after=retry_after, destination_down=st.booleans()),
    st.builds(Terminal, code=codes, bug=st.booleans()),
    st.builds(Unknown, code=codes, bug=st.booleans(), from_lookup=st.booleans()),
    st.builds(Unknown, code=codes, from_lookup=st.just(True), wait_seconds=st.floats(0, 86_400)),
)
policies = st.builds(
    Policy,
    attempts=st.integers(1, 6),
    lookups=st.integers(1, 6),
    crashes=st.integers(1, 3),
    backoff=st.just(Backoff(initial_seconds=5, max_seconds=60)),
    retry_after_max_seconds=st.floats(0, 300),
)
rules = st.builds(
    Rules,
    policy=policies,
    in_doubt=st.sampled_from(["lookup", "resend", "hold"]),
    money=st.booleans(),
    on_dead=st.sampled_from(["halt", "continue", "continue_on_terminal"]),
    has_breaker=st.booleans(),
    token_ttl_seconds=st.none() | st.floats(1, 10**6),
)


@st.composite
def attempts(draw: st.DrawFn, under: Rules) -> Attempt:
    """An attempt that such rules can have handed out."""
    ago = st.none() | st.floats(0, 200_000).map(lambda seconds: NOW - timedelta(seconds=seconds))
    return m.attempt(
        spent=draw(st.integers(0, under.policy.attempts - 1)),
        lookups=draw(st.integers(0, under.policy.lookups - 1)),
        crashes=draw(st.integers(0, under.policy.crashes - 1)),
        in_doubt_since=draw(ago),
        down_since=draw(ago),
    )


@st.composite
def cases(draw: st.DrawFn) -> tuple[Attempt, Answer, Rules, Settlement]:
    under = draw(rules)
    attempt, answer = draw(attempts(under)), draw(answers)
    settlement = policy.decide(attempt, answer, under, now=NOW, random=Random(draw(st.integers())))
    return attempt, answer, under, settlement


@pytest.mark.req("G-10")
@given(cases())
def test_every_answer_has_exactly_one_legal_settlement(case: tuple[Attempt, Answer, Rules, Settlement]) -> None:
    _, answer, _, chosen = case
    legal = {
        Delivered: {SettlementKind.CLOSE},
        Advance: {SettlementKind.ADVANCE},
        Retryable: {SettlementKind.RETRY, SettlementKind.PARK},
        Terminal: {SettlementKind.PARK},
        Unknown: {SettlementKind.RETRY, SettlementKind.PARK},
    }
    assert chosen.kind in legal[type(answer)]
    assert chosen.answer is answer
    assert (chosen.closed is not None) == (chosen.kind is SettlementKind.CLOSE)
    assert (chosen.park_reason is not None) == (chosen.kind is SettlementKind.PARK)
    assert (chosen.stage is not None) == (chosen.kind is SettlementKind.ADVANCE)
    assert chosen.park_reason is not ParkReason.UNRECORDED


@pytest.mark.req("G-10")
@given(cases())
def test_failure_has_a_stable_error_class(case: tuple[Attempt, Answer, Rules, Settlement]) -> None:
    _, answer, _, chosen = case
    if chosen.kind in (SettlementKind.RETRY, SettlementKind.PARK):
        assert chosen.error_class == clean_code(getattr(answer, "code", None))
    else:
        assert chosen.error_class is None


@pytest.mark.req("G-13")
@given(cases())
def test_doubt_is_lost_only_by_an_answer_that_resolves_it(case: tuple[Attempt, Answer, Rules, Settlement]) -> None:
    attempt, answer, _, chosen = case
    resolved = isinstance(answer, Delivered | Advance)
    assert chosen.in_doubt == ((attempt.in_doubt or isinstance(answer, Unknown)) and not resolved)
    if chosen.park_reason is ParkReason.HELD:
        assert chosen.in_doubt


@pytest.mark.req("G-13")
@given(cases())
def test_money_in_doubt_without_lookup_is_never_dead(case: tuple[Attempt, Answer, Rules, Settlement]) -> None:
    _, answer, under, chosen = case
    if isinstance(answer, Unknown) and under.in_doubt == "hold":
        assert chosen.park_reason is ParkReason.HELD or (answer.from_lookup and chosen.kind is SettlementKind.RETRY)


@pytest.mark.req("G-12")
@given(cases())
def test_budget_is_never_exceeded(case: tuple[Attempt, Answer, Rules, Settlement]) -> None:
    attempt, _, under, chosen = case
    assert attempt.spent <= chosen.spent <= attempt.spent + 1 or chosen.kind is SettlementKind.ADVANCE
    assert chosen.spent <= under.policy.attempts
    assert chosen.lookups <= under.policy.lookups
    if chosen.kind is SettlementKind.RETRY:
        assert chosen.spent < under.policy.attempts
        assert chosen.lookups < under.policy.lookups


@pytest.mark.req("G-11")
@given(cases())
def test_delay_is_within_its_bounds(case: tuple[Attempt, Answer, Rules, Settlement]) -> None:
    _, answer, under, chosen = case
    asked = getattr(answer, "wait_seconds", None) or 0.0
    longest = max(
        under.policy.backoff.max_seconds,
        under.policy.lookup_backoff.max_seconds,
        under.policy.retry_after_max_seconds,
        asked,
    )
    assert 0 <= chosen.delay_seconds <= longest


@pytest.mark.req("G-12")
@given(rules, st.data())
def test_any_series_of_failures_ends_parked_within_the_budget(under: Rules, data: st.DataObject) -> None:
    """However a destination misbehaves, the number of attempts is bounded (breaker and early lookups apart)."""
    failures = st.one_of(
        st.builds(Retryable, code=st.just("HTTP_503"), retry_after=retry_after),
        st.builds(Unknown, code=st.just("T"), from_lookup=st.booleans()),
    )
    spent = lookups = sends = 0
    for _ in range(under.policy.attempts + under.policy.lookups):
        attempt = m.attempt(spent=spent, lookups=lookups)
        chosen = policy.decide(attempt, data.draw(failures), under, now=NOW, random=Random(1))
        sends += chosen.spent - spent
        spent, lookups = chosen.spent, chosen.lookups
        if chosen.kind is SettlementKind.PARK:
            assert sends <= under.policy.attempts
            return
    pytest.fail("it was never parked")


@pytest.mark.req("G-12")
@pytest.mark.parametrize("attempts_allowed", [1, 2, 12, 1000])
def test_last_attempt_of_the_budget_parks_and_the_one_before_retries(attempts_allowed: int) -> None:
    under = Rules(policy=Policy(attempts=attempts_allowed))
    for spent in {attempts_allowed - 1, attempts_allowed - 2} - {-1}:
        chosen = policy.decide(m.attempt(spent=spent), Retryable("A"), under, now=NOW, random=Random(1))
        last = spent == attempts_allowed - 1
        assert (chosen.kind is SettlementKind.PARK) == last
        assert chosen.exhausted == last


@pytest.mark.req("G-25")
def test_destination_that_is_down_costs_nothing_where_it_has_a_breaker() -> None:
    down = Retryable("CONNECT_REFUSED", destination_down=True)
    last = m.attempt(spent=11)
    with_breaker = policy.decide(last, down, Rules(has_breaker=True), now=NOW, random=Random(1))
    assert (with_breaker.kind, with_breaker.spent, with_breaker.down) == ("retry", 11, True)
    without = policy.decide(last, down, Rules(has_breaker=False), now=NOW, random=Random(1))
    assert (without.kind, without.spent, without.exhausted) == ("park", 12, True)


@pytest.mark.req("G-25")
@pytest.mark.parametrize(("seconds", "kind"), [(86_400, "retry"), (86_401, "park")])
def test_destination_that_is_down_is_waited_for_no_longer_than_max_age(seconds: float, kind: str) -> None:
    down = Retryable("CONNECT_REFUSED", destination_down=True)
    attempt = m.attempt(down_since=NOW - timedelta(seconds=seconds))
    chosen = policy.decide(attempt, down, Rules(has_breaker=True), now=NOW, random=Random(1))
    assert (chosen.kind, chosen.exhausted) == (kind, kind == "park")


@pytest.mark.req("G-13")
def test_lookup_that_cannot_tell_spends_its_own_budget_and_no_attempt() -> None:
    unsure = Unknown("LOOKUP_CANNOT_TELL", from_lookup=True)
    attempt = m.attempt(spent=3, lookups=5, in_doubt_since=m.START)
    chosen = policy.decide(attempt, unsure, Rules(in_doubt="lookup"), now=NOW, random=Random(1))
    assert (chosen.kind, chosen.spent, chosen.lookups, chosen.in_doubt) == ("retry", 3, 6, True)


@pytest.mark.req("G-13")
def test_absent_too_early_counts_as_nothing() -> None:
    early = Unknown("ABSENT_TOO_EARLY", from_lookup=True, wait_seconds=7.5)
    attempt = m.attempt(spent=11, lookups=19, in_doubt_since=m.START)
    chosen = policy.decide(attempt, early, Rules(in_doubt="lookup"), now=NOW, random=Random(1))
    assert (chosen.kind, chosen.spent, chosen.lookups, chosen.delay_seconds) == ("retry", 11, 19, 7.5)


@pytest.mark.req("G-10")
@pytest.mark.parametrize(
    ("on_dead", "terminal_halts", "exhausted_halts"),
    [("halt", True, True), ("continue", False, False), ("continue_on_terminal", False, True)],
)
def test_dead_head_halts_its_key_as_the_destination_says(
    on_dead: Any, terminal_halts: bool, exhausted_halts: bool
) -> None:
    under = Rules(on_dead=on_dead, policy=Policy(attempts=1))
    terminal = policy.decide(m.attempt(), Terminal("A"), under, now=NOW, random=Random(1))
    exhausted = policy.decide(m.attempt(), Retryable("A"), under, now=NOW, random=Random(1))
    assert (terminal.halts, exhausted.halts) == (terminal_halts, exhausted_halts)


@pytest.mark.req("G-27")
@given(cases())
def test_held_message_always_keeps_its_key_waiting(case: tuple[Attempt, Answer, Rules, Settlement]) -> None:
    chosen = case[3]
    if chosen.park_reason is ParkReason.HELD:
        assert chosen.halts


@given(st.integers())
def test_same_randomness_gives_the_same_decision(seed: int) -> None:
    first, second = (
        policy.decide(m.attempt(), Retryable("A"), Rules(), now=NOW, random=Random(seed)) for _ in range(2)
    )
    assert first == second


def test_something_that_is_no_answer_is_refused() -> None:
    with pytest.raises(TypeError, match="five answers"):
        policy.decide(m.attempt(), ValueError("x"), Rules(), now=NOW, random=Random(1))  # type: ignore[arg-type]


def test_delivery_closes_and_spends_one() -> None:
    chosen = policy.decide(
        m.attempt(spent=4, in_doubt_since=m.START), Delivered("r"), Rules(), now=NOW, random=Random(1)
    )
    assert (chosen.closed, chosen.spent, chosen.in_doubt) == (Closed.DELIVERED, 5, False)


@pytest.mark.req("G-18")
@pytest.mark.req("G-27")
def test_an_answer_that_is_kept_is_recorded_until_its_crashes_are_spent() -> None:
    rules = Rules(policy=Policy(crashes=3))
    kept = m.attempt(kept_answer={"answer": "delivered"}, in_doubt_since=m.START)
    assert policy.opening(replace(kept, crashes=2), rules, now=m.START) is Opening.RECORD
    parked = policy.opening(replace(kept, crashes=3), rules, now=m.START)
    assert isinstance(parked, Settlement)
    assert (parked.park_reason, parked.error_class) == (ParkReason.UNRECORDED, "CRASHED")
    assert (parked.exhausted, parked.halts, parked.in_doubt) == (True, True, True)
