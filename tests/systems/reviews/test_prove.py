"""`redrive prove reviews`: what it would find, and that it finds nothing while relays are killed (R-07, R-12)."""

from __future__ import annotations

from typing import Any

import pytest

from redrive.systems.reviews.prove import rules
from redrive.systems.reviews.prove.campaign import KILLS, POINTS
from redrive.systems.reviews.prove.prove import ReviewsReport, prove


def _line(log: str, token: str, sha256: str = "x") -> dict[str, Any]:
    return {"log": log, "token": token, "sha256": sha256}


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        (["a", "b"], None),
        (["a"], "never notified"),
        (["a", "b", "b"], "more than once"),
        (["a", "b", "c"], "without being asked for"),
    ],
)
def test_a_log_of_a_provider_that_does_not_fit_is_a_violation(tokens: list[str], words: str | None) -> None:
    found = list(rules.sent_once({"a", "b"}, [_line("sent", one) for one in tokens]))
    assert any(words in sentence for sentence in found) if words else not found


def test_other_bytes_under_one_token_are_a_violation() -> None:
    same = [_line("request", "a"), _line("request", "a"), _line("request", "b", "y")]
    assert not list(rules.same_bytes(same))
    assert list(rules.same_bytes([*same, _line("request", "a", "y")]))


@pytest.mark.parametrize(
    ("logs", "ok"),
    [
        (["request", "sent", "asked"], True),
        (["request", "refused", "request", "sent"], True),
        (["request", "asked", "request", "sent"], True),
        (["request", "sent", "request"], False),
        (["request", "refused", "request", "request"], False),
        (["asked", "request", "request"], False),
    ],
)
def test_what_may_have_been_accepted_is_asked_about_before_it_is_requested_again(logs: list[str], ok: bool) -> None:
    lines = [_line(one, "a") for one in logs]
    assert bool(list(rules.asked_before_sent_again([*lines, _line("request", "b")]))) is not ok


@pytest.mark.parametrize(
    ("mails", "held", "words"),
    [
        ({"a": 1, "b": 1}, set(), None),
        ({"a": 1}, {"b"}, None),
        ({"a": 1, "b": 1}, {"b"}, None),
        ({"a": 1}, {"a", "b"}, "at most 1 were in doubt"),
        ({"a": 2, "b": 1}, set(), "more than once"),
        ({"a": 1}, set(), "neither mailed nor held"),
        ({"a": 1, "b": 1, "c": 1}, set(), "without being asked for"),
    ],
)
def test_a_second_mail_or_a_lost_one_is_a_violation(mails: dict[str, int], held: set[str], words: str | None) -> None:
    found = list(rules.mailed_at_most_once({"a", "b"}, mails, held, held_max=1))
    assert any(words in sentence for sentence in found) if words else not found


def test_the_report_says_what_was_done_and_what_was_violated() -> None:
    report = ReviewsReport(
        seed=7,
        scale=0.5,
        commit="abc",
        server="PostgreSQL 18",
        seconds=1.0,
        counts={"relays killed at record.start": 25},
    )
    text = "\n".join(report.lines())
    assert all(part in text for part in ("--seed 7 --scale 0.5", "25  relays killed at record.start", "exactly once"))
    bad = ReviewsReport(seed=7, scale=0.5, server="", seconds=1.0, counts={}, violations=["1 were never notified: a."])
    assert "1 violations:\n  1 were never notified: a." in "\n".join(bad.lines())


def _run(scale: float) -> ReviewsReport:
    report = prove(seed=7, scale=scale, dsn=None, progress=lambda *_: None)
    assert report.violations == []
    kills = max(1, round(KILLS * scale))
    assert [report.counts[f"relays killed at {point}"] for point in POINTS] == [kills] * len(POINTS)
    assert report.counts["notified by the provider"] == report.counts["reviews"] * 2
    assert report.counts["mailed and marked as sent"] >= report.counts["reviews"] - kills * len(POINTS)
    return report


@pytest.mark.full
@pytest.mark.timeout(300)
@pytest.mark.req("R-07", "R-11", "R-12")
@pytest.mark.seed("001", "Retries MUST be safe under process crash, network timeout, and worker restart.")
@pytest.mark.seed("001", "The system MUST enforce `send` -> `mark sent` ordering in code review and tests.")
def test_relays_that_are_killed_between_acceptance_and_write_notify_nobody_twice() -> None:
    _run(0.02)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.req("R-07")
def test_fifty_kills_at_each_point_notify_nobody_twice() -> None:
    report = _run(1.0)
    assert all(report.counts[f"accepted and not written at {point}"] > KILLS / 2 for point in POINTS)
