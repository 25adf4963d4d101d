"""Random histories of payments: the rail's ledger judges, the judge is tried, one seed is one history."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from redrive.errors import InvalidValue
from redrive.kit.proof.commands import Command
from redrive.systems.payments.prove import steering
from redrive.systems.payments.prove.drawing import SCRIPTS, VERBS, Ability, History, history, read_script
from redrive.systems.payments.prove.history_campaign import CAMPAIGN, Histories
from redrive.systems.payments.prove.judging import Reported, judged
from redrive.systems.payments.rail.ledger import Effect

IN_A_TEST_RUN = 30
IN_A_SOAK = 200
KEPT = Path(__file__).parent / "histories"

PAID = History(
    seed=0,
    ability="lo",
    statement=False,
    own_server=False,
    mute=False,
    compares=False,
    timeout_seconds=0.3,
    relays=1,
    commands=(
        Command("submit", {"payment": "pay-1", "participant": "p1", "amount": "5.00", "faults": ["lost_reply"]}),
        Command("submit", {"payment": "pay-2", "participant": "p1", "amount": "6.00", "faults": ["ok"]}),
    ),
)


def effect(number: int, **other: object) -> Effect:
    values = {
        "cursor": number,
        "token": f"t-{number}",
        "instruction_id": f"pay-{number}",
        "participant_id": "p1",
        "sequence_id": number,
        "amount": f"{4 + number}.00",
        "currency": "EUR",
        "reference": f"R-{number}",
        "effected_at": float(number),
    }
    return Effect(**{**values, **other})  # type: ignore[arg-type]  # each of its type


def report(state: str, key: str = "", *, payment: str = "pay-1", token: str = "t-1", **other: bool) -> Reported:
    doubts = {"in_doubt": False, "has_evidence": False, **other}
    return Reported(instruction_id=payment, key=key, state=state, tokens=frozenset({token}), **doubts)


@pytest.mark.parametrize(
    ("effects", "reports", "found"),
    [
        ([effect(1), effect(2)], [report("delivered")], ""),
        ([effect(1)], [report("dead", in_doubt=True), report("pending", "b", token="t-9")], ""),
        ([], [report("held", in_doubt=True)], ""),
        ([effect(1), effect(1, cursor=2)], [], "[paid twice] pay-1"),
        ([effect(1), effect(1, cursor=2, token="other")], [], "[paid twice] pay-1"),
        ([effect(1, amount="5.01")], [], "[other terms] pay-1"),
        ([effect(1, participant_id="p2")], [], "[other terms] pay-1"),
        ([effect(3)], [], "[never asked for] pay-3"),
        ([], [report("delivered")], "[reported as paid] pay-1"),
        ([effect(1)], [report("cancelled"), report("pending", "b", token="t-9")], "[second key] pay-1"),
        ([effect(2), effect(1, effected_at=3.0)], [], "[out of order] pay-1"),
    ],
)
def test_the_judge_sees_what_is_wrong(effects: Sequence[Effect], reports: Sequence[Reported], found: str) -> None:
    sentences = judged(PAID, effects, reports)
    assert len(sentences) == (1 if found else 0)
    assert all(sentence.startswith(found) for sentence in sentences)


def test_what_people_took_out_of_its_order_may_come_in_another_one() -> None:
    assert judged(PAID, [effect(2), effect(1, effected_at=3.0)], [], disordered={"pay-1"}) == []


def test_the_same_seed_is_the_same_history_and_another_one_is_not() -> None:
    assert [*history(7).lines()] == [*history(7).lines()] != [*history(8).lines()]


def test_histories_have_all_abilities_acts_faults_and_restores() -> None:
    histories = [history(seed) for seed in range(IN_A_SOAK)]
    assert {one.ability for one in histories} == set(get_args(Ability))
    verbs = {command.verb for one in histories for command in one.commands}
    assert verbs >= {"submit", "again", "second_key", "app_cancel", "reconcile", "pause", "resume", "backup"}
    assert verbs >= {"act", "acknowledge", "ready", "quiet", "wait"}
    assert verbs >= {"kill", "freeze", "thaw", "cut", "stop_server"}
    kinds = {command.values["kind"] for one in histories for command in one.commands if command.verb == "restore"}
    assert kinds == {"dump", "snapshot", "promotion"}


@pytest.mark.parametrize("seed", range(20))
def test_a_history_is_read_back_as_it_is_printed(seed: int) -> None:
    printed = [f"    {line} -> done" if number else line for number, line in enumerate(history(seed).lines())]
    assert read_script("\n".join(["Found:", *printed, "[paid twice] pay-1"])) == history(seed)


@pytest.mark.parametrize("text", ["", "submit payment=pay-1", "history 1: rail with wings, a statement, 1 relays"])
def test_a_text_without_a_history_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue, match="no line that begins with: history SEED"):
        read_script(text)


def test_a_line_that_is_no_command_is_refused() -> None:
    with pytest.raises(InvalidValue, match="no command: steal payment=pay-1"):
        read_script("\n".join([*PAID.lines(), "steal payment=pay-1"]))


def run(histories: Sequence[History]) -> Histories:
    return CAMPAIGN.run(histories, progress=lambda *_: None)


@pytest.mark.parametrize(
    ("seen", "situation", "often"),
    [
        (report("held", in_doubt=True), "held", {"deny", "confirm", "discard", "skip"}),
        (
            report("held", in_doubt=True, has_evidence=True),
            "evidence",
            {"deny", "requeue", "discard", "cancel", "edit", "skip"},
        ),
        (report("dead"), "dead", {"requeue", "edit", "replay"}),
        (report("dead", in_doubt=True), "dead in doubt", {"edit", "requeue", "replay"}),
        (report("pending", in_doubt=True), "pending in doubt", {"cancel", "skip", "app_cancel"}),
        (report("leased"), "pending", {"cancel", "skip", "app_cancel"}),
        (report("delivered"), "over", {"second_key", "again", "copy"}),
    ],
)
def test_acts_are_drawn_by_where_the_payment_is(seen: Reported, situation: str, often: set[str]) -> None:
    drawn = [steering.acts(number, [seen], ["pay-1"]) for number in range(1000)]
    assert steering.situation_of(seen) == situation
    first = Counter(commands[0].verb for commands in drawn)
    assert sum(first[verb] for verb in often) > 500
    assert set(first) >= {"requeue", "deny", "confirm", "edit", "replay", "copy", "discard", "cancel", "skip"}
    assert all(command.payment in ("pay-1", "") and command.verb in VERBS for commands in drawn for command in commands)
    assert drawn == [steering.acts(number, [seen], ["pay-1"]) for number in range(1000)]


def test_acts_are_drawn_on_what_is_open_more_often_than_on_what_is_over() -> None:
    seen = [report("delivered"), report("held", payment="pay-2", in_doubt=True)]
    drawn = Counter(steering.acts(number, seen, ["pay-1", "pay-2", "pay-3"])[0].payment for number in range(400))
    assert drawn["pay-2"] > drawn["pay-1"] + drawn["pay-3"] > 0


def shown(found: Histories) -> str:
    return "\n".join(line for one in found.violated for line in one.lines())


@pytest.mark.timeout(900)
@pytest.mark.own_server
@pytest.mark.req("P-05", "P-10", "P-11", "P-12", "P-13")
def test_no_history_that_once_paid_twice_does_so_again() -> None:
    """Each script was violated, or could have been. Answers that are written in it have to be the same.

    Where one is written, `quiet` has a minute: it ends when it is quiet, and a slow machine changes no answer.
    """
    texts = [path.read_text("utf-8") for path in sorted(KEPT.glob("*.txt"))]
    found = run([replace(read_script(text), seed=number) for number, text in enumerate(texts)])
    assert not found.violated, shown(found)
    said = {one.history.seed: [line.partition(" -> ")[2] for line in one.said[1:]] for one in found.told}
    for seed, text in enumerate(texts):
        written = SCRIPTS.answers(text)
        assert {number: said[seed][number - 1] for number in written} == written


@pytest.mark.timeout(600)
@pytest.mark.own_server
@pytest.mark.req("P-05", "P-10", "P-11", "P-12", "P-13")
def test_no_random_history_pays_twice() -> None:
    found = run(CAMPAIGN.drawn(0, IN_A_TEST_RUN))
    assert not found.violated, shown(found)
    assert found.count == IN_A_TEST_RUN


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.own_server
@pytest.mark.req("P-05", "P-10", "P-11", "P-12", "P-13")
def test_no_history_of_a_long_run_pays_twice() -> None:
    found = run(CAMPAIGN.drawn(1, IN_A_SOAK))
    assert not found.violated, shown(found)
    assert found.count == IN_A_SOAK


@pytest.mark.timeout(300)
@pytest.mark.own_server
def test_a_rail_that_is_sent_to_without_a_question_is_a_violation_that_is_shrunk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The relays are told that the rail remembers tokens, which it does not: in doubt they send again."""
    wrong = replace(PAID, commands=(PAID.commands[0], Command("reconcile")))
    monkeypatch.setattr(
        "redrive.systems.payments.prove.running.DECLARED", {"can_look_up": False, "token_ttl_seconds": 60.0}
    )
    (violated,) = run([wrong]).violated
    assert violated.sentences[0].startswith("[paid twice] pay-1 has 2 effects")
    assert [line.split()[1] for line in violated.script if "->" in line] == ["submit"]
