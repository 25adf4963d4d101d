"""Random histories of the engine: the observer's log judges, the judge is tried, one seed is one history."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from redrive.errors import InvalidValue
from redrive.kit.proof.commands import Command
from redrive.prove.histories import judging, steering
from redrive.prove.histories.destinations import ASKED, DESTINATIONS, HEALTHY, HELD, HOSTILE, PLAIN, REMEMBERING
from redrive.prove.histories.drawing import SCRIPTS, VERBS, History, history, read_script
from redrive.prove.histories.engine import CAMPAIGN, Histories
from redrive.prove.histories.judging import Asked, Book, Disturbed, Message, Reported, delays_of, judged

IN_A_TEST_RUN = 3
IN_A_SOAK = 500
KEPT = Path(__file__).parent / "histories"
LANE = ("a", "k1")


def line(log: str, number: int = 1, at: float = 2.0, **other: Any) -> dict[str, Any]:
    values = {
        "log": log,
        "call": "send",
        "id": f"id-{number}",
        "attempt": 1,
        "token": f"t-{number}",
        "at": at,
        "destination": PLAIN,
        "pid": 7,
        "parent": 1,
        "place": int(at * 1000),
    }
    return {**values, **other}


def message(number: int = 1, **other: Any) -> Message:
    values = {
        "name": f"m-{number}",
        "id": f"id-{number}",
        "destination": PLAIN,
        "committed": True,
        "began_at": 1.0,
        "acknowledged_at": 1.1,
    }
    return Message(**{**values, **other})


def asked(verb: str, answer: str = "done", at: float = 3.0, **other: Any) -> Asked:
    return Asked(verb=verb, answer=answer, asked_at=at, answered_at=at, **other)


def sent(number: int = 1, at: float = 2.0, **other: Any) -> list[dict[str, Any]]:
    return [line("request", number, at, **other), line("effect", number, at + 0.01, **other)]


def said(answer: str = "delivered", at: float = 2.1, **other: Any) -> dict[str, Any]:
    return line("answered", at=at, answer=answer, **{"seconds": 0.1, **other})


AGAIN = sent(at=5.0, attempt=2)
KILLED = Disturbed(kind="kill", pid=7, since=2.5, until=2.5)
FROZEN = Disturbed(kind="freeze", pid=7, since=1.5, until=4.5)


@pytest.mark.parametrize(
    ("book", "states", "found"),
    [
        (Book(messages=[message()], observed=sent(), handled=[said()]), ["delivered"], ""),
        (Book(messages=[message()]), [], "[lost] m-1"),
        (Book(messages=[message()]), ["delivered"], "[lost] m-1 is reported as delivered"),
        (Book(messages=[message(asked=[asked("confirm")])]), ["delivered"], ""),
        (Book(messages=[message()]), ["pending"], "[not over] m-1"),
        (Book(messages=[message()]), ["behind"], ""),
        (Book(messages=[message()]), ["cancelled"], "[lost] m-1 is reported as cancelled"),
        (Book(messages=[message(asked=[asked("cancel", "cancelled")])]), ["cancelled"], ""),
        (Book(messages=[message(asked=[asked("cancel", "cancelled", committed=False)])]), ["cancelled"], "[lost] m-1"),
        (Book(messages=[message()]), ["skipped"], "[lost] m-1 is reported as skipped"),
        (Book(messages=[message()]), ["expired"], "[lost] m-1 is reported as expired"),
        (Book(messages=[message(expires=True)]), ["expired"], ""),
        (Book(messages=[message()]), ["dead"], "[parked without a cause] m-1"),
        (Book(messages=[message(calm=False)]), ["dead"], ""),
        (Book(messages=[message(asked=[asked("discard")])]), ["dead"], "[told otherwise] discard of m-1"),
        (Book(messages=[], observed=sent()[:1]), [], "[never asked for]"),
        (Book(messages=[message(committed=False)], observed=sent()[:1]), [], "[rolled back]"),
        (Book(messages=[message(began_at=3.0)], observed=sent()), ["delivered"], "[before its commit]"),
        (
            Book(messages=[message(asked=[asked("cancel", "cancelled", at=1.5)])], observed=sent()[:1]),
            ["cancelled"],
            "[sent after cancelled] Attempt 1 of m-1",
        ),
        (
            Book(messages=[message()], observed=[*sent(), *AGAIN], handled=[said(), said(attempt=2, at=5.1)]),
            ["delivered"],
            "[second effect] m-1",
        ),
        (Book(messages=[message()], observed=[*sent(), *AGAIN], handled=[said("unknown")]), ["delivered"], ""),
        (
            Book(messages=[message()], observed=[*sent(), *AGAIN], handled=[said()], disturbed=[KILLED]),
            ["delivered"],
            "",
        ),
        (
            Book(
                messages=[message(destination=HELD)],
                observed=[*sent(destination=HELD), *sent(at=5.0, attempt=2, destination=HELD)],
                handled=[said("unknown")],
            ),
            ["delivered"],
            "[second effect] m-1",
        ),
        (
            Book(
                messages=[message(destination=ASKED)],
                observed=[*sent(destination=ASKED), line("repeat", at=5.0, attempt=2, destination=ASKED, pid=8)],
                handled=[said("unknown")],
                disturbed=[KILLED],
            ),
            ["delivered"],
            "[second effect] m-1",
        ),
        (
            Book(
                messages=[message(destination=ASKED)],
                observed=[*sent(destination=ASKED, pid=8), line("repeat", at=4.6, attempt=1, destination=ASKED)],
                handled=[said("unknown")],
                disturbed=[FROZEN],
            ),
            ["delivered"],
            "",
        ),
        (Book(messages=[message(calm=False)], observed=sent(), handled=[said()]), ["dead"], "[outcome lost] Attempt 1"),
        (
            Book(messages=[message(calm=False)], observed=sent(), handled=[said()], disturbed=[KILLED]),
            ["dead"],
            "",
        ),
        (
            Book(
                messages=[message(lane=LANE), message(2, lane=LANE)],
                observed=[*sent(2, at=2.0), *sent(1, at=3.0)],
            ),
            ["delivered", "delivered"],
            "[out of order] m-2 was sent",
        ),
        (
            Book(
                messages=[message(lane=LANE, asked=[asked("requeue", out_of_order=True)]), message(2, lane=LANE)],
                observed=[*sent(2, at=2.0), *sent(1, at=3.0)],
            ),
            ["delivered", "delivered"],
            "",
        ),
        (
            Book(messages=[message(destination=HEALTHY)], observed=sent(at=9.0)),
            ["delivered"],
            "[neighbour waited] 1 of the healthy",
        ),
        (
            Book(messages=[message(destination=HEALTHY)], observed=sent(at=9.0), disturbed=[KILLED]),
            ["delivered"],
            "",
        ),
        (Book(complaints=["relay-1 ended by itself, with 1."]), [], "[process] relay-1"),
    ],
)
def test_the_judge_sees_what_is_wrong(book: Book, states: Sequence[str], found: str) -> None:
    reported = {f"id-{number}": Reported(state=state) for number, state in enumerate(states, 1)}
    sentences = judged(book, reported)
    assert len(sentences) == (1 if found else 0), sentences
    assert all(sentence.startswith(found) for sentence in sentences)


def test_a_slow_machine_is_measured_by_what_an_enqueue_takes() -> None:
    slow = message(destination=HEALTHY, began_at=0.0, acknowledged_at=1.0)
    book = Book(messages=[slow], observed=sent(at=9.0))
    assert judged(book, {"id-1": Reported(state="delivered")}) == []
    assert delays_of(book).calm == [8.0]


def test_the_same_seed_is_the_same_history_and_another_one_is_not() -> None:
    assert [*history(7).lines()] == [*history(7).lines()] != [*history(8).lines()]


def test_histories_have_every_destination_fault_and_verb() -> None:
    histories = [history(seed) for seed in range(IN_A_SOAK)]
    commands = [command for one in histories for command in one.commands]
    drawn = {verb for number in range(2000) for verb in verbs_of(number)}
    assert {command.verb for command in commands} | drawn >= VERBS - {"relay"}
    assert {command.values.get("destination") for command in commands} >= set(DESTINATIONS)
    faults = {fault for command in commands for fault in command.values.get("faults", ())}
    assert faults >= {*HOSTILE, "lost_reply", "hang", "busy", "record_exit", "record_enqueue", "cannot_tell"}
    assert max(len(one.commands) for one in histories) <= 60
    assert Counter(one.own_server for one in histories)[True] > IN_A_SOAK / 10


def verbs_of(draw: int) -> set[str]:
    states = {
        "m-1": "dead",
        "m-2": "held",
        "m-3": "unrecorded",
        "m-4": "pending",
        "m-5": "discarded",
        "m-6": "delivered",
    }
    return {command.verb for command in steering.acts(draw, states, [PLAIN] if draw % 3 else [])}


@pytest.mark.parametrize("seed", range(20))
def test_a_history_is_read_back_as_it_is_printed(seed: int) -> None:
    printed = [f"    {line} -> done" if number else line for number, line in enumerate(history(seed).lines())]
    assert read_script("\n".join(["Found:", *printed, "[lost] m-1"])) == history(seed)


def test_a_text_without_a_history_and_a_line_that_is_no_command_are_refused() -> None:
    with pytest.raises(InvalidValue, match="no line that begins with: history SEED: N relays"):
        read_script("history 1: rail with wings")
    with pytest.raises(InvalidValue, match="no command: steal message=m-1"):
        read_script("\n".join([*history(1).lines(), "steal message=m-1"]))


def run(histories: Sequence[History]) -> Histories:
    return CAMPAIGN.run(histories, progress=lambda *_: None)


def shown(found: Histories) -> str:
    return "\n".join(line for one in found.violated for line in one.lines())


@pytest.mark.timeout(900)
@pytest.mark.own_server
@pytest.mark.req("G-14", "G-18", "G-25", "G-31")
def test_no_history_that_once_broke_a_promise_does_so_again() -> None:
    """Each script was violated, or could have been. Answers that are written in it have to be the same.

    Where one is written, `quiet` has a minute: it ends when it is quiet, and a slow machine changes no answer.
    """
    texts = [path.read_text("utf-8") for path in sorted(KEPT.glob("*.txt"))]
    found = run([replace(read_script(text), seed=number) for number, text in enumerate(texts)])
    assert not found.violated, shown(found)
    told = {one.history.seed: [line.partition(" -> ")[2] for line in one.said[1:]] for one in found.told}
    for seed, text in enumerate(texts):
        written = SCRIPTS.answers(text)
        assert {number: told[seed][number - 1] for number in written} == written


@pytest.mark.timeout(300)
@pytest.mark.own_server
@pytest.mark.req("G-14", "G-18", "G-25", "G-31")
def test_no_random_history_breaks_a_promise() -> None:
    found = run(CAMPAIGN.drawn(0, IN_A_TEST_RUN))
    assert not found.violated, shown(found)
    assert found.count == IN_A_TEST_RUN
    assert found.delays.every


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.own_server
@pytest.mark.req("G-14", "G-18", "G-25", "G-31")
def test_no_history_of_a_long_run_breaks_a_promise() -> None:
    found = run(CAMPAIGN.drawn(1, IN_A_SOAK))
    assert not found.violated, shown(found)
    assert found.count == IN_A_SOAK


@pytest.mark.timeout(300)
@pytest.mark.own_server
def test_a_violation_is_shrunk_to_the_commands_that_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge is told that the destination is asked in doubt, which it is not: a lost reply has two effects.

    A machine that let the relay wait for a processor excuses nothing here.
    """
    monkeypatch.setattr(judging, "REMEMBERING", (*REMEMBERING, PLAIN))
    monkeypatch.setattr(Book, "is_late", lambda *_: False)
    values = {"message": "m-1", "destination": PLAIN, "tenant": "a", "faults": ["lost_reply"]}
    calm = {"message": "m-2", "destination": ASKED, "tenant": "a", "faults": ["ok"]}
    wrong = History(
        seed=0, relays=1, own_server=False, commands=(Command("enqueue", values), Command("enqueue", calm))
    )  # fmt: skip
    (violated,) = run([wrong]).violated
    assert violated.sentences[0].startswith("[second effect] m-1 had an effect at plain by attempt 1")
    assert [line.split()[2] for line in violated.script if "->" in line] == ["message=m-1"]
    assert any("redrive prove engine --history 0" in line for line in violated.lines())
