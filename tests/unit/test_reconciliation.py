"""The judgement over three books, by value: each pair of what we say and what the ledger says has one answer."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from redrive.patterns.reconciliation import Effect, Item, Kind, Page, collect, match

NOON = datetime(2040, 1, 1, 12, tzinfo=UTC)
TERMS = {"amount": 5, "currency": "EUR"}
EFFECT = Effect(cursor="1", key="a", terms=TERMS, reference="R-1")


def item(state: str, **other: Any) -> Item:
    return Item(key="a", terms=TERMS, state=state, at=NOON, **other)


def judged(one: Item, *effects: Effect, until: datetime | None = None) -> str:
    """The kind of the finding, or late, agreed, open."""
    verdict = match([one], effects, complete_until=until)
    words = [finding.kind.value for finding in verdict.findings]
    words += ["late"] * len(verdict.late) + ["agreed"] * len(verdict.agreed) + ["open"] * verdict.open
    (word,) = words
    return word


PARKED, CLOSED = ("dead", "held"), ("cancelled", "expired", "skipped", "discarded")
EXPECTED = {
    **{(state, 0): "open" for state in ("pending", "leased", "unrecorded", *PARKED)},
    **{(state, 0): "agreed" for state in CLOSED},
    ("delivered", 0): "missing",
    ("delivered", 1): "agreed",
    ("leased", 1): "open",
    ("unrecorded", 1): "open",
    **{(state, 1): "late" for state in ("pending", *PARKED)},
    **{(state, 1): "given_up" for state in CLOSED},
    **{(state, 2): "twice" for state in ("pending", "leased", "delivered", "unrecorded", *PARKED, *CLOSED)},
}


@pytest.mark.parametrize(("state", "effects"), list(EXPECTED))
def test_every_state_with_no_one_and_two_effects_has_its_answer(state: str, effects: int) -> None:
    assert judged(item(state), *[EFFECT, replace(EFFECT, cursor="2")][:effects]) == EXPECTED[state, effects]


@pytest.mark.parametrize("state", ["pending", "leased", "delivered", "held", "dead", "cancelled"])
@pytest.mark.parametrize("terms", [{"amount": 6, "currency": "EUR"}, {"amount": 5, "currency": "USD"}, {}])
def test_other_terms_are_a_finding_whatever_the_state(state: str, terms: dict[str, object]) -> None:
    assert judged(item(state), replace(EFFECT, terms=terms)) == Kind.DIFFERS


def test_what_waits_and_is_in_the_ledger_is_late_whether_in_doubt_or_not() -> None:
    assert judged(item("pending", in_doubt=True), EFFECT) == "late"


def test_a_delivered_one_under_a_token_of_nobody_is_a_finding() -> None:
    assert judged(item("delivered", tokens={"t"}), replace(EFFECT, token="t")) == "agreed"
    assert judged(item("delivered", tokens={"t"}), replace(EFFECT, token="u")) == Kind.OTHER_TOKEN
    assert judged(item("delivered", tokens={"t"}, reference="R-1"), replace(EFFECT, token="u")) == "agreed", "tied"
    assert judged(item("delivered"), replace(EFFECT, token="u")) == "agreed"
    assert judged(item("held", tokens={"t"}), replace(EFFECT, token="u")) == "late"


def test_what_the_ledger_may_say_is_compared_where_it_says_it_with_the_version_of_its_token() -> None:
    told: dict[str, Any] = {"told": {"to": "x"}, "versions": {"t2": {"to": "y"}}, "tokens": {"t1", "t2"}}
    assert judged(item("held", **told), replace(EFFECT, token="t1")) == "late"
    assert judged(item("held", **told), replace(EFFECT, token="t1", terms={**TERMS, "to": "x"})) == "late"
    assert judged(item("held", **told), replace(EFFECT, token="t1", terms={**TERMS, "to": "y"})) == Kind.DIFFERS
    assert judged(item("held", **told), replace(EFFECT, token="t2", terms={**TERMS, "to": "y"})) == "late"
    assert judged(item("held", **told), replace(EFFECT, token="t2", terms={**TERMS, "to": "x"})) == Kind.DIFFERS


def test_what_was_delivered_after_the_ledger_was_read_is_not_missing_yet() -> None:
    assert judged(item("delivered"), until=NOON - timedelta(seconds=1)) == "open"
    assert judged(item("delivered"), until=NOON) == Kind.MISSING


def test_another_reference_is_a_finding_and_none_is_not() -> None:
    assert judged(item("delivered", reference="R-9"), EFFECT) == Kind.OTHER_REFERENCE
    assert judged(item("delivered", reference="R-1"), EFFECT) == "agreed"
    assert judged(item("delivered"), EFFECT) == "agreed"


def test_an_effect_that_nobody_asked_for_is_unexplained_with_its_entry_as_evidence() -> None:
    verdict = match([], [EFFECT, replace(EFFECT, key=None, cursor="7")])
    assert [finding.kind for finding in verdict.findings] == [Kind.UNEXPLAINED] * 2
    assert {finding.subject for finding in verdict.findings} == {"a", "cursor 7"}
    assert verdict.findings[0].evidence["ledger"][0]["amount"] == "5"


async def test_a_ledger_is_read_to_its_end_and_each_page_is_kept_before_the_next() -> None:
    pages = {None: Page([{"cursor": "1"}], "1"), "1": Page([{"cursor": "2"}], "2"), "2": Page([], None)}
    heard: list[str] = []

    async def read(after: str | None) -> Page:
        heard.append(f"read {after}")
        return pages[after]

    async def keep(page: Page) -> str:
        heard.append(f"keep {page.entries[-1]['cursor']}")
        return str(page.entries[-1]["cursor"])

    assert await collect(read, keep, after=None) == 2
    assert heard == ["read None", "keep 1", "read 1", "keep 2", "read 2"]
    assert await collect(read, keep, after="2") == 0
