"""`redrive prove brokers`: what its judge would find, that it finds nothing, and that it finds what is broken."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from redrive.kit.proof.processes import Processes
from redrive.kit.proof.report import bound
from redrive.prove.brokers import plan
from redrive.prove.brokers.judge import SHOWN_MAX, Effect, Evidence, judged
from redrive.prove.brokers.plan import CONFIRM_CUT, RESTARTED, WORKER_KILLED, Plan
from redrive.prove.brokers.prove import prove
from redrive.prove.brokers.report import BrokersReport

pytestmark = pytest.mark.req("G-23")

SCALE = 0.06
SABOTAGED = "tests.crash.sabotaged_consumer:app"


def line(log: str, key: str, order_by: str | None = "k") -> dict[str, Any]:
    return {"log": log, "key": key, "order_by": order_by}


def committed(*keys: str, order_by: str | None = "k") -> list[dict[str, Any]]:
    return [line(log, key, order_by) for key in keys for log in ("intent", "ack")]


FINISHED: dict[str, Any] = {"log": "finished", "producer": "p"}
ROLLED_BACK = [line("intent", "x"), line("rolled_back", "x")]
WELL = Evidence(
    journals=[[*committed("a", "b", "c"), FINISHED], committed("d", order_by="other")],
    business=frozenset("abcd"),
    effects=[Effect("d", "other"), Effect("a", "k"), Effect("b", "k"), Effect("c", "k")],
    left={"messages in the broker are not acknowledged": 0},
)


def effects(*names: str) -> Sequence[Effect]:
    return [Effect(name, "other" if name == "d" else "k") for name in names]


@pytest.mark.parametrize(
    ("evidence", "found"),
    [
        (WELL, []),
        (replace(WELL, effects=effects("a", "d", "c")), ["[lost] b"]),
        (replace(WELL, effects=effects("a", "b", "c", "d", "b")), ["[twice] b has 2 effects"]),
        (replace(WELL, effects=effects("a", "c", "b", "d")), ["[overtaken] b was committed before c"]),
        (replace(WELL, effects=effects("a", "b", "c", "d", "x")), ["[invented] x"]),
        (replace(WELL, effects=[*effects("a", "b", "d"), Effect("c", "other")]), ["[key] c came with"]),
        (replace(WELL, left={"messages wait": 3}), ["[left over] 3 messages wait."]),
    ],
)
def test_each_broken_promise_is_found(evidence: Evidence, found: list[str]) -> None:
    sentences = judged(evidence)
    assert len(sentences) == len(found)
    assert all(sentence.startswith(words) for sentence, words in zip(sentences, found, strict=True))


@pytest.mark.parametrize(
    ("journal", "business", "names"),
    [
        (ROLLED_BACK, "", []),
        ([*ROLLED_BACK, *committed("a", "x")], "ax", ["a", "x"]),  # tried again later: that is its place
        ([*committed("a"), line("intent", "b")], "ab", ["a", "b"]),  # its producer was not told, and it is committed
        ([*committed("a"), line("intent", "b")], "a", ["a"]),
        ([line("intent", "b"), *committed("a", "b")], "ab", ["b", "a"]),
        ([line("intent", "b"), *committed("a")], "a", ["a"]),
        (committed("a", "b", "a"), "ab", ["a", "b"]),
    ],
)
def test_what_is_committed_is_what_the_producer_was_told_or_has_a_row_of(
    journal: list[dict[str, Any]], business: str, names: list[str]
) -> None:
    evidence = replace(WELL, journals=[journal], business=frozenset(business))
    assert list(evidence.committed()) == names


def test_many_violations_of_one_rule_are_counted_and_not_all_printed() -> None:
    keys = [f"m{number}" for number in range(SHOWN_MAX + 5)]
    sentences = judged(replace(WELL, journals=[committed(*keys)], effects=()))
    assert len(sentences) == SHOWN_MAX + 1
    assert sentences[-1] == "[lost] And 5 more."


def test_a_plan_has_every_fault_and_repeats_by_its_seed() -> None:
    whole = Plan.of(seed=1, scale=1, survives=True)
    assert (whole.messages, Counter(whole.publishing)[CONFIRM_CUT]) == (20_000, 50)
    assert Counter(whole.consuming)[WORKER_KILLED] == 30
    small = Plan.of(seed=1, scale=0.01, survives=True)
    assert set(small.publishing) == set(plan.PUBLISHING)
    assert set(small.consuming) == set(plan.CONSUMING)
    assert small == Plan.of(seed=1, scale=0.01, survives=True)
    assert whole.publishing != Plan.of(seed=2, scale=1, survives=True).publishing


def test_a_broker_that_forgets_is_not_restarted() -> None:
    forgetful = Plan.of(seed=1, scale=1, survives=False)
    assert RESTARTED not in {*forgetful.publishing, *forgetful.consuming}


def test_the_report_says_what_happened_with_each_broker_and_how_to_repeat_it() -> None:
    report = BrokersReport(
        seed=7,
        scale=0.5,
        commit="abc",
        server="PostgreSQL 18",
        seconds=12.0,
        counts={"messages": 1000},
        brokers={"nats": {"committed": 1000}},
        faults={"nats": {WORKER_KILLED: 30}},
    )
    text = "\n".join(report.lines())
    for part in ("--seed 7 --scale 0.5 --broker nats, commit abc", "1,000  committed", "30  worker killed", "10.00%"):
        assert part in text
    assert report.document()["bound"] == bound(30)
    bad = replace(report, violations=["nats: [lost] a"])
    assert not bad.ok
    assert "Nothing was lost" not in "\n".join(bad.lines())


def test_the_processes_of_a_proof_take_nothing_from_the_settings_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their `redrive relay` and `redrive worker` would read them, and the `redrive.toml` of the directory."""
    monkeypatch.setenv("REDRIVE_METRICS_LISTEN", "127.0.0.1:9464")
    code = "import os; print(os.getcwd(), sorted(name for name in os.environ if name.startswith('REDRIVE_')))"
    process = Processes(tmp_path, {"REDRIVE_DSN": "of the proof"}).start("any", "timeit", "-n1", "-r1", code)
    assert process.wait(60) == 0
    assert process.said.read_text().splitlines()[0] == f"{tmp_path} ['REDRIVE_DSN']"


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "broker",
    ["nats", "redis", pytest.param("kafka", marks=pytest.mark.full), pytest.param("rabbitmq", marks=pytest.mark.full)],
)
def test_nothing_is_lost_doubled_overtaken_or_left_over(server_dsn: str, broker: str) -> None:
    report = prove(seed=7, scale=SCALE, dsn=server_dsn, progress=lambda *_: None, brokers=[broker])
    print("\n".join(report.lines()))
    assert report.violations == []
    counts, faults = report.brokers[broker], report.faults[broker]
    assert counts["committed"] == counts["effects"] >= 1200
    assert counts["of them deferred to the consumer's engine"] > 0
    assert faults[WORKER_KILLED] == 2
    assert faults[CONFIRM_CUT] == 3
    assert (RESTARTED in faults) == (broker != "kafka")


@pytest.mark.full
@pytest.mark.timeout(600)
def test_a_consumer_that_breaks_every_promise_is_found_out(server_dsn: str) -> None:
    report = prove(
        seed=7,
        scale=0.02,
        dsn=server_dsn,
        progress=lambda *_: None,
        brokers=["nats"],
        consumer_app=SABOTAGED,
        quiet_seconds=8.0,
    )
    rules = {match[1] for sentence in report.violations if (match := re.match(r"nats: \[([a-z ]+)\]", sentence))}
    assert rules == {"stuck", "lost", "twice", "overtaken", "invented", "left over"}
