"""The checker finds what it is there to find: each rule is broken once, by hand, in an otherwise clean run."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from redrive.prove import limit_rules
from redrive.prove.checker import RULES, check
from redrive.prove.config import HOLD, LIMITED, LOOKUP, RECORD, Config
from redrive.prove.evidence import Evidence
from redrive.prove.script import OUTAGE

TERMS = Config()
SHA = hashlib.sha256(b"{}").hexdigest()
WORKER = "w-1"
IDS = ("m-a", "m-b", "m-c")
THIRD: dict[str, Any] = {"destination": HOLD, "claimed_at": 30.0, "completed_at": 35.0}


def message(id: str, destination: str = LOOKUP, *, number: int | None = None) -> dict[str, Any]:
    """With a number it is of the one ordering key of the run."""
    order = {"order_by": "customer" if number else None, "sequence": number}
    return {"id": id, "tenant": "proof", "key": f"key-{id}", "destination": destination, "sha256": SHA, **order}


def row(id: str, attempt: int, verb: str = "settle", **changes: Any) -> dict[str, Any]:
    plain = {
        "id": id,
        "attempt": attempt,
        "verb": verb,
        "destination": LOOKUP,
        "stage": "first",
        "version": 1,
        "settlement": "close",
        "answer": "delivered",
        "closed": None,
        "code": None,
        "reference": None,
        "spent": 0,
        "in_doubt": False,
        "worker": WORKER,
        "claimed_at": 10.0 * attempt,
        "completed_at": 10.0 * attempt + 5,
    }
    return {**plain, **changes}


def line(log: str, id: str, attempt: int, call: str = "send", **changes: Any) -> dict[str, Any]:
    plain = {
        "log": log,
        "call": call,
        "id": id,
        "attempt": attempt,
        "token": f"token-{id}",
        "destination": LOOKUP,
        "sha256": SHA,
        "at": 10.0 * attempt + 1,
        "fault": None,
    }
    return {**plain, **changes}


def produced(log: str, id: str) -> dict[str, Any]:
    return {"log": log, **message(id)}


def seen(times: Sequence[float], *, at_once: int = 1, fault: str | None = None) -> list[dict[str, Any]]:
    """What a destination with limits sees: sends at these times, each answered when `at_once` are under way."""
    sends = [line("request", f"m-{n}", 1, destination=LIMITED, at=at, fault=fault) for n, at in enumerate(times)]
    ends = [{**send, "log": "answer", "answer": "done"} for send in sends]
    lines = sends[:at_once]
    for send, end in zip(sends[at_once:], ends, strict=False):
        lines += [end, send]
    return [*lines, *ends[-at_once:]]


def limits_broken(*observed: dict[str, Any]) -> dict[str, Sequence[str]]:
    found = check(replace(clean(), observed=observed), TERMS).violations
    return {rule: found[rule] for rule in limit_rules.RULES if rule in found}


def registered(id: str) -> dict[str, Any]:
    return {"tenant": "proof", "key_hash": hashlib.sha256(f"key-{id}".encode()).hexdigest(), "id": id}


def clean() -> Evidence:
    """Three lives: delivered at once; in doubt, absent, sent again; held after one attempt in doubt.

    The second and the third are of one ordering key.
    """
    return Evidence(
        produced=[
            *(produced("intent", id) for id in IDS),
            *(produced("ack", id) for id in IDS),
            produced("intent", "m-gone"),
            produced("rolled_back", "m-gone"),
        ],
        messages=[message("m-a"), message("m-b", number=1), message("m-c", HOLD, number=2)],
        counters=[{"tenant": "proof", "order_by": "customer", "last_sequence": 2}],
        keys=[registered(id) for id in IDS],
        business=[{"tenant": "proof", "key": f"key-{id}", "destination": LOOKUP, "sha256": SHA} for id in IDS],
        recorded=[],
        completed=[],
        attempts=[
            row("m-a", 1, closed="delivered", reference="r-1", spent=1),
            row("m-b", 1, "reap", settlement=None, answer=None, in_doubt=True, code="LEASE_RAN_OUT"),
            row("m-b", 2, closed="delivered", reference="r-2", spent=1),
            row("m-c", 1, settlement="park", answer="unknown", code="TIMEOUT", spent=1, in_doubt=True, **THIRD),
        ],
        parked=[
            {
                "id": "m-c",
                "destination": HOLD,
                "reason": "held",
                "error_class": "TIMEOUT",
                "spent": 1,
                "lookups": 0,
                "crashes": 0,
                "attempt": 1,
                "in_doubt": True,
                "lane": 1,
                "sequence": 2,
                "halts": True,
            }
        ],
        observed=[
            line("request", "m-a", 1),
            line("effect", "m-a", 1, reference="r-1"),
            line("answer", "m-a", 1, answer="done"),
            line("request", "m-b", 1),
            line("request", "m-b", 2, "lookup"),
            line("answer", "m-b", 2, "lookup", answer="absent"),
            line("request", "m-b", 2),
            line("effect", "m-b", 2, reference="r-2"),
            line("answer", "m-b", 2, answer="done"),
            line("request", "m-c", 1, destination=HOLD, at=31.0),
            line("effect", "m-c", 1, destination=HOLD, reference="r-3", at=32.0),
        ],
    )


def without(rows: Any, **values: Any) -> list[Any]:
    return [one for one in rows if any(one.get(name) != value for name, value in values.items())]


def broken() -> dict[str, Evidence]:
    """Rule to a run that breaks it."""
    run = clean()
    late = {"id": "m-a", "attempt": 1, "worker": WORKER, "answer": "delivered"}
    pending = {"id": "m-c", "destination": HOLD, "attempt": 1, "spent": 1, "due_at": "now", "suspect": False}
    pending |= {"lane": 1, "sequence": 2}
    busy = row("m-d", 1, settlement="retry", answer="retryable", code="BUSY", spent=1, completed_at=15.0)
    return {
        "no loss": replace(run, messages=without(run.messages, id="m-a")),
        "no ghost": replace(run, messages=[*run.messages, message("m-gone")]),
        "atomic with the business row": replace(run, business=without(run.business, key="key-m-a")),
        "one row per key": replace(run, messages=[*run.messages, {**message("m-a2"), "key": "key-m-a"}]),
        "conservation": replace(run, pending=[pending]),
        "closed is closed": replace(run, attempts=[*run.attempts, row("m-a", 2)]),
        "archive complete": replace(run, attempts=without(run.attempts, id="m-b", attempt=1)),
        "one live attempt": replace(
            run, attempts=[*run.attempts[:1], {**run.attempts[1], "completed_at": 24.0}, run.attempts[2]]
        ),
        "outcome only by the current attempt": replace(run, late=[late]),
        "budgets": replace(run, attempts=[{**run.attempts[0], "spent": 2}, *run.attempts[1:]]),
        "record commits with the outcome": replace(run, recorded=[{"id": "m-a", "attempt": 1}]),
        "quiescent": replace(run, pending=[pending], parked=[]),
        "every request archived": replace(run, observed=[*run.observed, line("request", "m-a", 7)]),
        "intent before effect": replace(run, observed=[{**run.observed[0], "at": 9.0}, *run.observed[1:]]),
        "no request after the outcome": replace(run, observed=[*run.observed, line("request", "m-a", 1, at=16.0)]),
        "one token, the same bytes": replace(run, observed=[*run.observed, line("request", "m-b", 2, token="another")]),
        "lookup before a resend": replace(run, observed=without(run.observed, answer="absent")),
        "hold never resends": replace(
            run,
            attempts=[*run.attempts, row("m-c", 2, in_doubt=True, spent=1, **{**THIRD, "claimed_at": 36.0})],
            observed=[*run.observed, line("request", "m-c", 2, destination=HOLD, at=37.0)],
        ),
        "one effect where one can ask": replace(
            run, observed=[*run.observed, line("effect", "m-a", 1, reference="r-9")]
        ),
        "delivered means an effect": replace(run, observed=without(run.observed, log="effect", id="m-a")),
        "an effect is delivered or in doubt": replace(
            run, attempts=[*run.attempts[:3], {**run.attempts[3], "in_doubt": False, "answer": "terminal"}]
        ),
        "numbers without gaps": replace(run, messages=[*run.messages[:2], message("m-c", HOLD, number=3)]),
        "no message overtakes": replace(run, observed=[*run.observed[-2:], *run.observed[:-2]]),
        "claimed in turn": replace(run, attempts=[*run.attempts[:3], {**run.attempts[3], "claimed_at": 24.0}]),
        "no key was forgotten": replace(run, mended=[{"name": "mend_lanes", "mended": 3}]),
        "never too many at once": replace(run, observed=seen([0.0] * 9, at_once=9)),
        "never too many a second": replace(run, observed=seen([0.0] * 99)),
        "left alone when down": replace(run, observed=seen([n / 20 for n in range(60)], fault=OUTAGE)),
        "Retry-After honoured": replace(
            run,
            messages=[*run.messages, message("m-d")],
            attempts=[
                *run.attempts,
                busy,
                row("m-d", 2, claimed_at=15.1, closed="delivered", reference="r-4", spent=2),
            ],
            observed=[*run.observed, line("answer", "m-d", 1, answer="busy", retry_after=0.2)],
        ),
    }


def test_a_clean_run_has_no_violation() -> None:
    verdict = check(clean(), TERMS)
    assert verdict.sentences == []
    assert verdict.counts["messages"] == 3
    assert verdict.counts["effects seen"] == 3


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_finds_its_violation_and_names_the_message(rule: str) -> None:
    evidence = broken()[rule]
    found = check(evidence, TERMS).violations.get(rule, [])
    assert found
    assert any(name in found[0] for name in ("m-a", "b", "c", "d", "m-gone"))


def test_a_late_answer_beside_a_complete_is_no_violation_where_the_relay_could_not_know() -> None:
    run = clean()
    completed = [{**run.attempts[0], "verb": "complete"}, *run.attempts[1:]]
    late = {"id": "m-a", "attempt": 1, "worker": WORKER, "answer": "unknown"}
    run = replace(run, completed=[{"id": "m-a", "attempt": 1}])
    assert check(replace(run, attempts=completed, late=[late]), TERMS).sentences == []
    for attempts, answer in ((completed, "delivered"), (run.attempts, "unknown")):
        found = check(replace(run, attempts=attempts, late=[{**late, "answer": answer}]), TERMS).violations
        assert "outcome only by the current attempt" in found


def test_a_second_send_is_a_violation_unless_its_process_was_frozen_past_its_lease() -> None:
    run = clean()
    repeat = line("repeat", "m-b", 2, reference="r-2")
    assert check(replace(run, observed=[*run.observed, repeat]), TERMS).violations.keys() == {
        "one effect where one can ask"
    }
    frozen = line("repeat", "m-b", 1, reference="r-2", at=40.0)
    verdict = check(replace(run, observed=[*run.observed, frozen]), TERMS)
    assert verdict.sentences == []
    assert verdict.counts["late sends stopped by their token"] == 1


def test_an_answered_attempt_without_its_record_is_a_violation() -> None:
    run = clean()
    settled = row("m-a", 1, destination=RECORD, closed="delivered", reference="r-1", spent=1)
    verdict = check(replace(run, attempts=[settled, *run.attempts[1:]]), TERMS)
    assert list(verdict.violations) == ["record commits with the outcome"]


def test_violations_are_counted_beyond_what_is_shown() -> None:
    run = clean()
    many = [line("request", "a", number) for number in range(10, 60)]
    found = check(replace(run, observed=[*run.observed, *many]), TERMS).violations["every request archived"]
    assert found[-1] == "… and 30 more."


def test_what_waits_behind_a_message_that_waits_for_a_person_is_quiet() -> None:
    run = clean()
    behind = {"id": "m-e", "destination": HOLD, "attempt": 0, "spent": 0, "due_at": "now", "suspect": False}
    waiting = replace(
        run,
        messages=[*run.messages, message("m-e", HOLD, number=3)],
        counters=[{"tenant": "proof", "order_by": "customer", "last_sequence": 3}],
        pending=[{**behind, "lane": 1, "sequence": 3}],
    )
    rules = check(waiting, TERMS).violations
    assert "quiescent" not in rules
    assert "quiescent" in check(replace(waiting, parked=[{**run.parked[0], "halts": False}]), TERMS).violations


def test_a_message_that_is_claimed_while_the_one_before_it_still_waits_is_out_of_turn() -> None:
    run = clean()
    waits = {"id": "m-b", "destination": LOOKUP, "attempt": 2, "lane": 1, "sequence": 1, "spent": 1}
    for open_ in (
        replace(run, pending=[{**waits, "due_at": "now", "suspect": False}]),
        replace(run, leases=[{**waits, "worker": WORKER}]),
    ):
        assert "m-c" in check(open_, TERMS).violations["claimed in turn"][0]
    gone_on = replace(run, messages=[run.messages[0], message("m-c", HOLD, number=1), message("m-b", number=2)])
    assert "claimed in turn" in check(gone_on, TERMS).violations, "a message that is parked and halts its key"


def test_a_late_send_of_a_frozen_process_overtakes_nobody() -> None:
    run = clean()
    frozen = line("request", "m-b", 1, at=40.0)
    assert check(replace(run, observed=[*run.observed, frozen]), TERMS).sentences == []


def test_as_many_at_once_as_a_destination_allows_and_not_one_more() -> None:
    most = TERMS.limited[LIMITED].global_concurrency
    slowly = [float(n) for n in range(40)]
    assert limits_broken(*seen(slowly, at_once=most)) == {}
    assert limits_broken(*seen(slowly, at_once=most + 1)).keys() == {"never too many at once"}


def test_a_send_that_was_under_way_when_its_claim_ran_out_is_not_counted_any_more() -> None:
    """A frozen process keeps its connection; its destination has room again all the same."""
    most = TERMS.limited[LIMITED].global_concurrency
    frozen = line("request", "m-b", 1, destination=LIMITED, at=11.0)
    gone = line("gone", "m-b", 1, destination=LIMITED, at=40.0)
    others = seen([20.0 + n for n in range(10)], at_once=most)
    assert limits_broken(frozen, *others, gone) == {}
    assert limits_broken(frozen, *others, {**gone, "at": 11.5}).keys() == {"never too many at once"}


def test_as_many_in_any_second_as_a_rate_allows_and_what_was_on_its_way() -> None:
    limits = TERMS.limited[LIMITED]
    steadily = [1.0 + n / limits.rate for n in range(500)]
    at_once = [0.0] * int(limits.rate + limits.global_concurrency)
    assert limits_broken(*seen([*at_once, *steadily])) == {}
    assert limits_broken(*seen([*at_once, 0.99, *steadily])).keys() == {"never too many a second"}
    too_fast = [n / (1.4 * limits.rate) for n in range(500)]
    assert limits_broken(*seen(too_fast)).keys() == {"never too many a second"}
    saved_and_earned = [0.0] * int(limits.rate), [n / limits.rate for n in range(1, 500)]
    assert limits_broken(*seen([*saved_and_earned[0], *saved_and_earned[1]])).keys() == {"never too many a second"}


def test_a_destination_that_is_down_sees_probes_and_each_outage_is_counted_apart() -> None:
    outage = [n / 10 for n in range(26)]
    later = [at + 20 for at in outage]
    assert limits_broken(*seen([*outage, *later], fault=OUTAGE)) == {}
    stubborn = [n / TERMS.limited[LIMITED].rate for n in range(45)]
    assert limits_broken(*seen(stubborn, fault=OUTAGE)).keys() == {"left alone when down"}
