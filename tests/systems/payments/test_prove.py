"""`redrive prove payments`: what it would find, that it finds nothing, and an answer that comes after the lease."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Any

import psycopg
import pytest

from redrive.kit.proof.environment import ProofEnvironment
from redrive.systems import payments
from redrive.systems.payments import Instruction
from redrive.systems.payments.prove import config, rules
from redrive.systems.payments.prove.config import Config, Plan
from redrive.systems.payments.prove.environment import Scene
from redrive.systems.payments.prove.prove import PaymentsReport, prove
from redrive.systems.payments.rail.ledger import Effect, read_effects
from redrive.systems.payments.rail.script import Fault
from tests.support.scratch import scratch
from tests.systems.payments.conftest import IBAN

WANTED = [
    Instruction(
        instruction_id=f"pay-{number}",
        participant_id="acme",
        rail_type="sepa",
        amount="5.00",
        currency="EUR",
        destination={"iban": IBAN},
    )
    for number in (1, 2)
]


def made(number: int, **other: Any) -> Effect:
    values: dict[str, Any] = {
        "cursor": number,
        "token": f"t-{number}",
        "instruction_id": f"pay-{number}",
        "participant_id": "acme",
        "sequence_id": number,
        "amount": "5.00",
        "currency": "EUR",
        "reference": f"R-{number}",
        "effected_at": float(number),
    }
    return Effect(**{**values, **other})


@pytest.mark.parametrize(
    ("effects", "words"),
    [
        ([made(1), made(2)], None),
        ([made(1), made(2), made(2, cursor=3)], "more than once"),
        ([made(1)], "never paid"),
        ([made(1), made(2), made(3)], "without an instruction"),
        ([made(1), made(2, amount="5.01")], "another amount"),
        ([made(1), made(2, currency="USD")], "another amount"),
        ([made(1), made(2, amount="5.01")], "10.00 EUR were to be paid, and 10.01 were"),
    ],
)
def test_a_ledger_that_does_not_fit_is_a_violation(effects: list[Effect], words: str | None) -> None:
    found = [*rules.paid_once(WANTED, effects), *rules.paid_to_the_cent(WANTED, effects)]
    assert any(words in sentence for sentence in found) if words else not found


def send(number: int, at: float, fault: str | None = None) -> dict[str, Any]:
    return {
        "log": "request",
        "call": "send",
        "token": f"t-{number}",
        "participant_id": "acme",
        "sequence_id": number,
        "at": at,
        "fault": fault,
    }


def effect(number: int, at: float) -> dict[str, Any]:
    return {"log": "effect", "token": f"t-{number}", "participant_id": "acme", "sequence_id": number, "effected_at": at}


def absent(number: int) -> dict[str, Any]:
    return {"log": "looked_up", "token": f"t-{number}", "found": False}


@pytest.mark.parametrize(
    ("lines", "is_broken"),
    [
        ([send(1, 1), effect(1, 2), send(2, 3), effect(2, 4)], False),
        ([send(2, 1), effect(2, 2), send(1, 3), effect(1, 4)], True),
        ([send(1, 1), send(2, 2), effect(1, 3), effect(2, 4)], True),
        ([send(1, 1), effect(1, 2), send(2, 3), send(1, 4)], True),
    ],
)
def test_a_payment_that_overtakes_is_a_violation(lines: list[dict[str, Any]], is_broken: bool) -> None:
    assert bool(list(rules.in_order(lines))) == is_broken


@pytest.mark.parametrize(
    ("lines", "is_broken"),
    [
        ([send(1, 1, "lost_reply"), absent(1), send(1, 2)], False),
        ([send(1, 1, "throttled"), send(1, 2)], False),
        ([send(1, 1, "lost_reply"), send(1, 2)], True),
        ([send(1, 1), send(1, 2)], True),
        ([send(1, 1, "late"), absent(2), send(1, 2)], True),
    ],
)
def test_a_payment_that_is_sent_again_without_a_question_is_a_violation(
    lines: list[dict[str, Any]], is_broken: bool
) -> None:
    assert bool(list(rules.asked_before_sent_again(lines))) == is_broken


def test_a_late_payment_that_is_neither_held_nor_found_is_a_violation() -> None:
    assert not list(rules.held_when_too_late({"a", "b"}, held={"a"}, found={"b", None}))
    assert list(rules.held_when_too_late({"a", "b"}, held={"a"}, found=set()))
    assert list(rules.held_when_too_late({"a"}, held={"a", "b"}, found=set()))
    assert list(rules.held_when_too_late({"a"}, held=set(), found={"a"}))


def test_numbers_with_a_gap_are_a_violation() -> None:
    assert not list(rules.without_gaps({"a": [2, 1, 3], "b": [1]}))
    assert len(list(rules.without_gaps({"a": [1, 3], "b": [2], "c": [1, 1]}))) == 1


def test_the_same_seed_pays_the_same() -> None:
    plan = Plan.of(seed=7, scale=0.05, own_server=True)
    first, again = config.instructions(plan), config.instructions(plan)
    assert first == again != config.instructions(replace(plan, seed=8))
    assert (len(first), len({one.participant_id for one in first})) == (500, 100)
    assert all(Decimal(one.amount) > 0 for one in first)
    assert {one.rail_type for one in first} == {"sepa", "ach", "card", "wallet"}


REPORT = PaymentsReport(
    seed=7,
    scale=0.5,
    commit="abc",
    server="PostgreSQL 18",
    seconds=12.0,
    settings={"token and lookup": {"lease_seconds": 2.0}},
    counts={"payments": 5000, "beyond: payments": 20},
)


def test_the_report_says_what_happened() -> None:
    text = "\n".join(REPORT.lines())
    parts = (
        "--seed 7 --scale 0.5",
        "commit abc",
        "5,000  payments",
        "20  payments",
        "lease_seconds 2.0",
        "to the cent",
    )
    assert all(part in text for part in parts)
    bad = replace(REPORT, violations=["1 were never paid: pay-1."])
    assert (bad.ok, bad.document()["ok"]) == (False, False)
    assert "1 violations:\n  1 were never paid: pay-1." in "\n".join(bad.lines())


@pytest.fixture
def environment(database: str) -> Iterator[ProofEnvironment]:
    limits = config.WITHIN.limits()
    with scratch("redrive-pay-") as place, ProofEnvironment(place, database, limits=limits) as opened:
        yield opened


@pytest.mark.full
@pytest.mark.req("P-05", "G-14")
def test_an_answer_that_comes_after_the_lease_is_refused_and_kept_and_it_is_paid_once(
    environment: ProofEnvironment,
) -> None:
    """The rail pays and is slow to say so; meanwhile the claim is lost, and another relay asks and finds it."""
    slow = Config(hang_seconds=6.0, timeout_seconds=60.0)
    scene = Scene(environment, slow, name="late")
    scene.open_rails(config.RAILS[:1], seed=1, faults={Fault.HANG: 100.0})
    (sleeper,) = scene.open_relays(1)
    with psycopg.connect(environment.dsn) as conn:
        payments.add_participant(conn, "acme")
        payments.submit(conn, WANTED[0])
    ledger = scene.ledgers["sepa"]
    assert environment.wait(lambda: list(read_effects(ledger)), seconds=60)
    paid_at = time.monotonic()
    os.kill(sleeper.pid, signal.SIGSTOP)
    scene.open_relays(1)
    assert environment.wait(lambda: environment.counts()["closed"] == 1, seconds=60)
    environment.wait(lambda: time.monotonic() > paid_at + slow.hang_seconds, seconds=60)  # by now the rail has answered
    os.kill(sleeper.pid, signal.SIGCONT)
    late = "SELECT answer, reference FROM redrive.late_answer"
    assert environment.wait(lambda: environment.rows(late), seconds=60)
    assert scene.close_relays() == []
    (paid,) = read_effects(ledger)
    assert environment.rows(late) == [("delivered", paid.reference)]
    reaped, *_, closed = environment.rows("SELECT verb, closed, reference FROM redrive.attempt ORDER BY completed_at")
    assert reaped == ("reap", None, None)
    # By the other relay, which asked the rail, or by the statement, if the books were compared before that.
    assert closed in {("settle", "delivered", paid.reference), ("confirm", "delivered", paid.reference)}


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.req("P-01", "P-03", "P-05")
def test_payments_over_faulty_rails_are_made_once_while_relays_are_killed() -> None:
    report = prove(seed=7, scale=0.05, dsn=None, progress=lambda *_: None)
    assert report.violations == []
    assert (report.counts["payments"], report.counts["effects"]) == (500, 500)
    assert (report.counts["relays killed"], report.counts["PostgreSQL stopped at once"]) == (2, 1)
    assert report.counts["beyond: held for a person"] == report.counts["beyond: late successes confirmed"] > 0
    assert report.counts["unexplained in the books"] == report.counts["beyond: unexplained in the books"] == 0
