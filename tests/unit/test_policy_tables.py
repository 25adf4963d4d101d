"""Every cell of the tables of answers in docs/states.md, tried against the pure decisions."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any, Final

import pytest

from redrive import policy
from redrive.answers import Advance, Answer, Delivered, Retryable, Terminal, Unknown
from redrive.message import Attempt, ParkReason
from redrive.policy import Opening, Policy, Rules, Settlement, SettlementKind
from tests.support import messages as m
from tools import state_tables
from tools.state_tables import Cell

pytestmark = [pytest.mark.req("G-13"), pytest.mark.req("G-28")]

POLICY: Final = Policy(attempts=3, lookups=3, crashes=3)
NOW: Final = m.at(1_000)
DOUBT: Final = {"in_doubt_since": m.START}
TOKEN_TTL: Final = {"token_ttl_seconds": 1_000.0}  # trusted for 800 seconds, and 1,000 have passed

ATTEMPTS: Final[dict[str, dict[str, Any]]] = {
    "not in doubt": {},
    "in doubt": DOUBT,
    "in doubt before": DOUBT,
    "answer kept": {"kept_answer": {"answer": "delivered"}},
    "evidence": {"has_evidence": True},
    "answer kept, crashes spent": {"kept_answer": {"answer": "delivered"}, "crashes": 3},
    "cancel requested": {"cancel_requested": True},
    "expired": {"expired": True},
    "crashes spent": {"crashes": 3},
    "left": {"spent": 1, "lookups": 1},
    "spent": {"spent": 2, "lookups": 2},
    "budget spent": {"spent": 4},
    "denied since": {"earlier": (m.entry("deny", 500),)},
    "denied before": {"earlier": (m.entry("deny", 500), m.entry("reap", 600))},
    "token used too long ago": {"in_doubt_since": m.at(900), "token_used_since": m.START},
}
RULES: Final[dict[str, dict[str, Any]]] = {
    "token forgotten": TOKEN_TTL,
    "token used too long ago": TOKEN_TTL,
    "token remembered": {"token_ttl_seconds": 10_000.0},
    "absent is final": {"absent_is_final": True, "token_ttl_seconds": 10_000.0},
    "money": {"money": True},
    "money without a token": {"money": True, "token_ttl_seconds": None},
    "too early": {"lookup_after_seconds": 5_000.0},
}
ANSWERS: Final[dict[str, Answer]] = {
    "Delivered": Delivered(),
    "Advance": Advance("second"),
    "Retryable": Retryable("HTTP_503"),
    "Terminal": Terminal("HTTP_400"),
    "Unknown": Unknown("READ_TIMEOUT"),
}


def enumerated(table: str) -> list[Any]:
    return [pytest.param(cell, id=f"{cell.row}-{cell.column}") for cell in state_tables.cells(table)]


def situation(parts: list[str], mode: str) -> tuple[Attempt, Rules]:
    """The attempt and the rules that a row of the table describes in words."""
    fields: dict[str, Any] = {}
    rules: dict[str, Any] = {}
    for part in parts:
        assert part in ATTEMPTS or part in RULES or part in ("bug", "server error"), (
            f"no test knows what {part!r} means"
        )
        fields |= ATTEMPTS.get(part, {})
        rules |= RULES.get(part, {})
    return m.attempt(**fields), Rules(policy=POLICY, **{"in_doubt": mode, **rules})


def words(chosen: Opening | Settlement) -> str:
    """A decision as the page writes it."""
    if isinstance(chosen, Opening):
        return chosen.value
    detail = chosen.closed or chosen.park_reason
    name = f"{chosen.kind}·{detail}" if detail else str(chosen.kind)
    return f"{name}, in doubt" if chosen.in_doubt else name


@pytest.mark.parametrize("cell", enumerated("openings"))
def test_attempt_begins_as_the_table_says(cell: Cell) -> None:
    attempt, rules = situation(cell.row.split(", "), cell.column)
    assert words(policy.opening(attempt, rules, now=NOW)) == cell.text


@pytest.mark.parametrize("cell", enumerated("answers"))
def test_answer_is_settled_as_the_table_says(cell: Cell) -> None:
    name, *parts = cell.row.split(", ")
    attempt, rules = situation(parts, cell.column)
    answer = Unknown("UNCLASSIFIED", bug=True) if "bug" in parts else ANSWERS[name]
    if "server error" in parts:
        answer = Retryable("HTTP_500", status=500)
    assert words(policy.decide(attempt, answer, rules, now=NOW, random=Random(1))) == cell.text


@pytest.mark.parametrize("cell", enumerated("lookups"))
def test_lookup_is_followed_by_what_the_table_says(cell: Cell) -> None:
    name, *parts = cell.row.split(", ")
    attempt, rules = situation(["in doubt", *parts], cell.column)
    assert words(_after_lookup(name, attempt, rules)) == cell.text.replace("send", Opening.SEND)


def _after_lookup(name: str, attempt: Attempt, rules: Rules) -> Opening | Settlement:
    """What dispatch does with each answer of a lookup."""
    answer: Answer | Settlement | None
    if name == "Found":
        answer = Delivered("ref-1")
    elif name == "CannotTell":
        answer = Unknown("LOOKUP_CANNOT_TELL", from_lookup=True)
    else:
        answer = policy.after_absent(attempt, rules, now=NOW)
    if answer is None:
        return policy.opening(replace(attempt, in_doubt_since=None), rules, now=NOW)
    if isinstance(answer, Settlement):
        return answer
    return policy.decide(attempt, answer, rules, now=NOW, random=Random(1))


# Exhaustive, where the page shows the cases that differ.

FLAGS: Final = (False, True)


@pytest.mark.parametrize("in_doubt", ["lookup", "resend", "hold"])
@pytest.mark.parametrize("money", FLAGS)
def test_every_opening_is_legal(in_doubt: Any, money: bool) -> None:
    """All combinations of what an attempt can carry: nothing in doubt goes out where the destination can be asked."""
    for attempt in _every_attempt():
        for token_ttl_seconds in (None, 1_000.0, 1_250.0):
            rules = Rules(policy=POLICY, in_doubt=in_doubt, money=money, token_ttl_seconds=token_ttl_seconds)
            chosen = policy.opening(attempt, rules, now=NOW)
            _check_opening(attempt, rules, chosen)


def _every_attempt() -> list[Attempt]:
    return [
        m.attempt(
            in_doubt_since=m.START if doubt else None,
            cancel_requested=cancelled,
            expired=expired,
            crashes=crashes,
            kept_answer={"answer": "delivered"} if kept else None,
            has_evidence=proven,
        )
        for doubt in FLAGS
        for cancelled in FLAGS
        for expired in FLAGS
        for crashes in (0, 2, 3, 4)
        for kept in FLAGS
        for proven in FLAGS
    ]


def _check_opening(attempt: Attempt, rules: Rules, chosen: Opening | Settlement) -> None:
    recorded = attempt.kept_answer is not None and attempt.crashes < POLICY.crashes
    assert (chosen is Opening.RECORD) == recorded
    if attempt.kept_answer is not None and isinstance(chosen, Settlement):
        assert (chosen.park_reason, chosen.halts) == (ParkReason.UNRECORDED, True)
    if attempt.has_evidence and attempt.kept_answer is None:
        assert isinstance(chosen, Settlement)
        assert (chosen.park_reason, chosen.error_class, chosen.in_doubt) == (ParkReason.HELD, "LATE_SUCCESS", True)
        return
    if chosen is Opening.SEND and attempt.in_doubt:
        assert rules.in_doubt == "resend"
        assert not attempt.cancel_requested
        assert not attempt.expired
        assert rules.token_ttl_seconds != 1_000.0, "the token was forgotten"
    if chosen in (Opening.SEND, Opening.LOOK_UP):
        assert attempt.crashes < POLICY.crashes
    if chosen is Opening.LOOK_UP:
        assert (rules.in_doubt, attempt.in_doubt) == ("lookup", True)
    if isinstance(chosen, Settlement):
        assert chosen.kind in (SettlementKind.CLOSE, SettlementKind.PARK)
        assert chosen.answer is None
        assert (chosen.spent, chosen.in_doubt) == (attempt.spent, attempt.in_doubt)


@pytest.mark.parametrize("seconds", [0, 1, 999, 1_000, 1_001])
@pytest.mark.parametrize("money", FLAGS)
@pytest.mark.parametrize("final", FLAGS)
@pytest.mark.parametrize("token_ttl_seconds", [None, 60.0, 10_000.0])
def test_every_absent_is_legal(seconds: float, money: bool, final: bool, token_ttl_seconds: float | None) -> None:
    rules = Rules(
        policy=POLICY,
        in_doubt="lookup",
        lookup_after_seconds=1_000,
        money=money,
        token_ttl_seconds=token_ttl_seconds,
        absent_is_final=final,
    )
    for attempt in (a for a in _every_attempt() if a.in_doubt):
        now = m.START + timedelta(seconds=seconds)
        instead = policy.after_absent(attempt, rules, now=now)
        if seconds < 1_000:
            assert isinstance(instead, Unknown)
        elif money and not final and (attempt.cancel_requested or attempt.expired):
            assert isinstance(instead, Settlement)
            assert (instead.park_reason, instead.in_doubt) == ("held", True)
            assert instead.error_class == ("CANCELLED" if attempt.cancel_requested else "EXPIRED") + "_IN_DOUBT"
        elif attempt.cancel_requested or attempt.expired:
            assert isinstance(instead, Settlement)
            assert instead.closed == ("cancelled" if attempt.cancel_requested else "expired")
        elif money and (token_ttl_seconds is None or (token_ttl_seconds == 60.0 and not final)):
            assert isinstance(instead, Settlement)
            assert (instead.park_reason, instead.in_doubt) == ("held", True)
        else:
            assert instead is None
