"""One attempt, from its opening to its settlement: every opening with every answer of every step (G-10, G-13)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import pytest

from redrive.answers import (
    Absent,
    Advance,
    Answer,
    CannotTell,
    Delivered,
    Found,
    Retryable,
    Terminal,
    Unknown,
    to_json,
)
from redrive.message import Attempt
from redrive.policy import Policy
from redrive.ports import NotBegun, Outcome
from redrive.transports.functions import FunctionTransport
from tests.relay.scripted import Raised, Scripted, Stage, Step, dispatch, hang
from tests.support import messages as m

pytestmark = [pytest.mark.req("G-10"), pytest.mark.req("G-13")]

DOUBTFUL = m.attempt(number=2, spent=1, in_doubt_since=m.at(-100))
PLAIN = m.attempt()


def doubtful(**changes: Any) -> Attempt:
    return replace(DOUBTFUL, **changes)


class Is(NamedTuple):
    """What became of an attempt: the settlement in short, and what it cost."""

    what: str  # close·delivered, advance, retry, park·dead, park·held, park·unrecorded
    code: str | None = None
    spent: int = 0
    in_doubt: bool = False


def seen(outcome: Outcome) -> Is:
    settlement = outcome.settlement
    detail = settlement.closed or settlement.park_reason
    return Is(
        f"{settlement.kind}·{detail}" if detail else settlement.kind.value,
        settlement.error_class,
        settlement.spent,
        settlement.in_doubt,
    )


BUG = Is("park·dead", "UNCLASSIFIED", 1, in_doubt=True)
NONSENSE = BUG._replace(code="RETURN_INVALID")

# What a send ends with -> what becomes of an attempt that was not in doubt, on a destination that resends.
SENDS: Mapping[str, tuple[Step, Is]] = {
    "None": (None, Is("close·delivered", None, 1)),
    "Delivered": (Delivered("r-1", {"a": 1}), Is("close·delivered", None, 1)),
    "raised Delivered": (Raised(Delivered("r-1")), Is("close·delivered", None, 1)),
    "Advance": (Advance("second"), Is("advance", None, 0)),
    "Advance elsewhere": (Advance("second", destination="erp"), Is("advance", None, 0)),
    "raised Advance": (Raised(Advance("second")), Is("advance", None, 0)),
    "Retryable": (Retryable("BUSY"), Is("retry", "BUSY", 1)),
    "raised Retryable": (Raised(Retryable("BUSY")), Is("retry", "BUSY", 1)),
    "Retryable, down": (Retryable("REFUSED", destination_down=True), Is("retry", "REFUSED", 1)),
    "Terminal": (Terminal("NO"), Is("park·dead", "NO", 1)),
    "raised Terminal": (Raised(Terminal("NO")), Is("park·dead", "NO", 1)),
    "Unknown": (Unknown("LOST"), Is("retry", "LOST", 1, in_doubt=True)),
    "raised Unknown": (Raised(Unknown("LOST")), Is("retry", "LOST", 1, in_doubt=True)),
    # Only a lookup can say that nothing was sent: said by a send it counts like any other Unknown.
    "Unknown that claims a lookup": (
        Unknown("LOST", from_lookup=True, wait_seconds=1e300),
        Is("retry", "LOST", 1, in_doubt=True),
    ),
    "odd code": (Terminal("card 4111-x"), Is("park·dead", "CARD_4111_X", 1)),
    "text": ("ok", Is("close·delivered", None, 1)),
    "True": (True, Is("close·delivered", None, 1)),
    "False": (False, Is("close·delivered", None, 1)),
    "JSON": ({"id": [1, None]}, Is("close·delivered", None, 1)),
    "bytes": (b"ok", NONSENSE),
    "object": (object(), NONSENSE),
    "infinity": (float("inf"), NONSENSE),
    "an answer's class": (Found("x"), NONSENSE),
    "unserialisable result": (Delivered(result=object()), NONSENSE),
    "NaN in the result": (Delivered(result=[float("nan")]), NONSENSE),
    "Advance without a stage": (Advance(None), NONSENSE),  # type: ignore[arg-type]  # what a handler may do
    "Advance to an empty stage": (Advance(""), NONSENSE),
    "Advance to a long stage": (Advance("s" * 101), NONSENSE),
    "Advance to a stage with NUL": (Advance("a\x00b"), NONSENSE),
    "Advance to a lone surrogate": (Advance("a\ud800b"), NONSENSE),
    "Advance to nowhere": (Advance("second", destination=""), NONSENSE),
    "Advance to a number": (Advance("second", destination=5), NONSENSE),  # type: ignore[arg-type]  # the same
    "code that cannot be shown": (Retryable(type("Odd", (), {"__str__": lambda _: 1 / 0})()), BUG),
    "exception": (KeyError("secret"), BUG),
    "SystemExit": (SystemExit(1), BUG),
    "KeyboardInterrupt": (KeyboardInterrupt(), BUG),
    "GeneratorExit": (GeneratorExit(), BUG),
    "RecursionError": (RecursionError(), BUG),
    "LookupAnswer raised": (Raised(Absent()), BUG),
}


@pytest.mark.parametrize("name", SENDS)
async def test_what_a_send_ends_with_decides(name: str) -> None:
    step, expected = SENDS[name]
    transport = Scripted(send=step)
    assert seen(await dispatch(transport, PLAIN)) == expected
    assert transport.calls == ["send"]


@pytest.mark.parametrize("name", SENDS)
async def test_after_absent_a_send_is_like_any_first_one(name: str) -> None:
    step, expected = SENDS[name]
    transport = Scripted(send=step, lookup=Absent())
    outcome = await dispatch(transport, DOUBTFUL, in_doubt="lookup", staged=True)
    spent = expected.spent + 1 if expected.spent else 0
    assert seen(outcome) == expected._replace(spent=spent)
    assert outcome.attempt.in_doubt_since is None
    assert transport.calls == ["lookup", "send"]


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ({}, "park·dead"),
        ({"in_doubt": "hold"}, "park·held"),
        ({"money": True, "token_ttl_seconds": 60.0}, "park·held"),
    ],
)
async def test_a_bug_is_held_where_a_second_effect_would_be_worse(rules: dict[str, Any], expected: str) -> None:
    outcome = await dispatch(Scripted(send=KeyError("x")), PLAIN, **rules)
    assert seen(outcome) == Is(expected, "UNCLASSIFIED", 1, in_doubt=True)


@pytest.mark.parametrize("value", ["ok", True, False, 0, "", [], {"id": [1, None]}, (1, 2)], ids=repr)
async def test_a_returned_value_that_is_json_is_the_result(value: object) -> None:
    async def send(attempt: Attempt) -> object:
        return value

    outcome = await dispatch(Scripted(send=send), PLAIN)
    assert seen(outcome) == Is("close·delivered", None, 1)
    assert outcome.settlement.answer == Delivered(result=value)


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (b"4111", "Delivered with a result of the type bytes"),
        ({"card": object()}, "Delivered with a result of the type dict"),
        (Delivered(result={4111111111}), "Delivered with a result of the type set"),
        (Advance(""), "Advance"),
    ],
    ids=["bytes", "dict", "set", "Advance"],
)
async def test_a_returned_value_that_cannot_be_kept_is_named_by_its_type_and_nothing_of_it_is_shown(
    value: object, named: str
) -> None:
    async def send(attempt: Attempt) -> object:
        return value

    outcome = await dispatch(Scripted(send=send), PLAIN)
    assert seen(outcome) == NONSENSE
    assert outcome.text is not None
    assert f"returned what cannot be kept: {named}." in outcome.text
    assert "4111" not in outcome.text


# lookups

FOUND = Is("close·delivered", None, 2)
CANNOT = Is("retry", "LOOKUP_CANNOT_TELL", 1, in_doubt=True)
FAILED = CANNOT._replace(code="LOOKUP_FAILED")
INVALID = CANNOT._replace(code="LOOKUP_ANSWER_INVALID")

LOOKUPS: Mapping[str, tuple[Step, Is]] = {
    "Found": (Found("r-1", {"a": 1}), FOUND),
    "raised Found": (Raised(Found("r-1")), FOUND),
    "CannotTell": (CannotTell(), CANNOT),
    "CannotTell with a code": (CannotTell("HTTP_503"), CANNOT._replace(code="HTTP_503")),
    "raised CannotTell": (Raised(CannotTell()), CANNOT),
    "exception": (KeyError("x"), FAILED),
    "SystemExit": (SystemExit(1), FAILED),
    "an answer to a send": (Raised(Terminal("NO")), FAILED),
    "CancelledError of its own": (asyncio.CancelledError(), FAILED),
    "TimeoutError of its own": (TimeoutError(), CANNOT._replace(code="LOOKUP_TIMEOUT")),
    "None": (None, INVALID),
    "True": (True, INVALID),
    "Delivered": (Delivered("r-1"), FOUND),
    "Advance": (Advance("second"), Is("advance", None, 0)),
    "returned answer to a send": (Retryable("BUSY"), INVALID),
    "unserialisable result": (Found(result=object()), INVALID),
}


@pytest.mark.parametrize("name", LOOKUPS)
async def test_in_doubt_the_destination_is_asked_and_nothing_is_sent_unless_it_is_absent(name: str) -> None:
    step, expected = LOOKUPS[name]
    transport = Scripted(send=AssertionError, validate=AssertionError, lookup=step)
    outcome = await dispatch(transport, DOUBTFUL, in_doubt="lookup")
    assert seen(outcome) == expected
    assert transport.calls == ["lookup"]
    assert outcome.settlement.lookups == (1 if expected.what == "retry" else 0)


async def test_what_was_found_is_kept_as_the_answer() -> None:
    outcome = await dispatch(Scripted(lookup=Found("r-1", {"a": 1})), DOUBTFUL, in_doubt="lookup")
    assert outcome.settlement.answer == Delivered("r-1", {"a": 1})


STAGED_HELD = Is("park·held", "FOUND_WITHOUT_OUTCOME", 1, in_doubt=True)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (Found("r-1"), STAGED_HELD),
        (Found("r-1", {"pdf": 7}), Is("close·delivered", None, 2)),
        (Advance("second", {"pdf": 7}), Is("advance", None, 0)),
        (Raised(Advance("second")), Is("advance", None, 0)),
        (Delivered("r-1"), Is("close·delivered", None, 2)),
        (Advance(""), CANNOT._replace(code="LOOKUP_ANSWER_INVALID")),
    ],
    ids=["Found", "Found with a result", "Advance", "raised Advance", "Delivered", "Advance to nowhere"],
)
async def test_of_a_message_with_stages_a_lookup_has_to_say_how_the_stage_ended(found: Step, expected: Is) -> None:
    """Found alone says that the effect is there, not that another stage must follow."""
    transport = Scripted(send=AssertionError, lookup=found)
    outcome = await Stage(transport, in_doubt="lookup", staged=True).dispatch(DOUBTFUL)
    assert seen(outcome) == expected
    assert transport.calls == ["lookup"]


async def test_a_destination_with_a_lookup_must_declare_its_stages() -> None:
    """A process that has just begun could not know that a message which its lookup finds has another stage."""
    transport = Scripted(send=Advance("second"), lookup=Found("r-1"))
    refused = await Stage(transport, in_doubt="lookup").dispatch(PLAIN)
    assert seen(refused) == BUG._replace(code="ADVANCE_UNDECLARED")
    assert refused.text == "It answered Advance and has a lookup, so its stages have to be declared: staged."
    assert seen(await Stage(transport, in_doubt="lookup", staged=True).dispatch(PLAIN)).what == "advance"
    assert seen(await Stage(transport, in_doubt="resend").dispatch(PLAIN)).what == "advance"


async def test_a_lookup_that_takes_too_long_cannot_tell() -> None:
    transport = Scripted(lookup=hang)
    outcome = await Stage(transport, in_doubt="lookup", timeout_seconds=0.01).dispatch(DOUBTFUL)
    assert seen(outcome) == CANNOT._replace(code="LOOKUP_TIMEOUT")
    assert transport.calls == ["lookup"]


async def test_lookups_have_a_budget_of_their_own_and_then_it_is_held() -> None:
    last = replace(DOUBTFUL, lookups=2)
    outcome = await dispatch(Scripted(lookup=CannotTell()), last, in_doubt="lookup")
    assert seen(outcome) == Is("park·held", "LOOKUP_CANNOT_TELL", 1, in_doubt=True)
    assert outcome.settlement.exhausted


@pytest.mark.parametrize("too_early_seconds", [1.0, 59.0])
async def test_absent_too_early_waits_until_it_is_believable_and_is_not_counted(too_early_seconds: float) -> None:
    transport = Scripted(lookup=Absent())
    attempt = replace(DOUBTFUL, in_doubt_since=m.at(-60 + too_early_seconds), lookups=2)
    outcome = await dispatch(transport, attempt, in_doubt="lookup", lookup_after_seconds=60.0)
    assert seen(outcome) == Is("retry", "ABSENT_TOO_EARLY", 1, in_doubt=True)
    assert outcome.settlement.delay_seconds == pytest.approx(too_early_seconds)
    assert outcome.settlement.lookups == 2
    assert outcome.attempt.in_doubt_since == attempt.in_doubt_since
    assert transport.calls == ["lookup"]


async def test_absent_is_believed_from_the_moment_on_that_was_declared() -> None:
    transport = Scripted(lookup=Absent())
    attempt = replace(DOUBTFUL, in_doubt_since=m.at(-60))
    assert (
        seen(await dispatch(transport, attempt, in_doubt="lookup", lookup_after_seconds=60.0)).what == "close·delivered"
    )
    assert transport.calls == ["lookup", "send"]


async def test_time_that_passed_since_the_claim_counts_too() -> None:
    """The database said when it was claimed; what passed here since is added (ruling 6)."""
    transport = Scripted(lookup=Absent())
    stage = Stage(transport, in_doubt="lookup", lookup_after_seconds=60.0)
    claimed_at = stage.clock.monotonic()
    stage.clock.advance(50)
    await stage.dispatcher.dispatch(replace(DOUBTFUL, in_doubt_since=m.at(-10)), claimed_at=claimed_at)
    assert transport.calls == ["lookup", "send"]


async def test_money_without_a_token_is_held_when_absent_after_doubt() -> None:
    transport = Scripted(lookup=Absent())
    outcome = await dispatch(transport, DOUBTFUL, in_doubt="lookup", money=True, lookups_are_immediate=True)
    assert seen(outcome) == Is("park·held", "ABSENT_AFTER_DOUBT", 1, in_doubt=True)
    assert transport.calls == ["lookup"]


async def test_money_with_a_token_is_sent_when_absent() -> None:
    transport = Scripted(lookup=Absent())
    assert (
        seen(
            await dispatch(
                transport, DOUBTFUL, in_doubt="lookup", money=True, lookups_are_immediate=True, token_ttl_seconds=600.0
            )
        )
        == FOUND
    )
    assert transport.calls == ["lookup", "send"]


# other openings


@pytest.mark.parametrize("ended", ["cancel_requested", "expired"])
@pytest.mark.parametrize(
    ("lookup", "expected", "calls"),
    [
        (Absent(), "close·", ["lookup"]),
        (Found("r"), "close·delivered", ["lookup"]),
        (CannotTell(), "retry", ["lookup"]),
    ],
)
async def test_cancelled_or_expired_in_doubt_is_only_looked_up(
    ended: str, lookup: Step, expected: str, calls: list[str]
) -> None:
    transport = Scripted(send=AssertionError, lookup=lookup)
    outcome = await dispatch(transport, doubtful(**{ended: True}), in_doubt="lookup")
    as_what = {"cancel_requested": "cancelled", "expired": "expired"}[ended]
    assert seen(outcome).what == (expected + as_what if expected == "close·" else expected)
    assert transport.calls == calls


@pytest.mark.parametrize("ended", ["cancel_requested", "expired"])
async def test_cancelled_or_expired_in_doubt_is_not_resent(ended: str) -> None:
    transport = Scripted(send=AssertionError)
    outcome = await dispatch(transport, doubtful(**{ended: True}), in_doubt="resend")
    assert seen(outcome).what.startswith("close·")
    assert outcome.settlement.in_doubt
    assert transport.calls == []


async def test_a_destination_that_holds_is_never_asked_or_sent_to_in_doubt() -> None:
    transport = Scripted(send=AssertionError, validate=AssertionError, lookup=AssertionError)
    outcome = await dispatch(transport, DOUBTFUL, in_doubt="hold")
    assert seen(outcome) == Is("park·held", "IN_DOUBT", 1, in_doubt=True)
    assert transport.calls == []


@pytest.mark.req("P-11")
@pytest.mark.parametrize("in_doubt", ["lookup", "resend", "hold"])
@pytest.mark.parametrize("attempt", [PLAIN, DOUBTFUL], ids=["plain", "doubtful"])
async def test_what_evidence_says_was_delivered_is_held_and_never_sent(attempt: Attempt, in_doubt: str) -> None:
    transport = Scripted(send=AssertionError, validate=AssertionError, lookup=AssertionError)
    outcome = await dispatch(transport, replace(attempt, has_evidence=True), in_doubt=in_doubt)
    assert seen(outcome) == Is("park·held", "LATE_SUCCESS", attempt.spent, in_doubt=True)
    assert transport.calls == []


async def test_resend_sends_again_with_the_same_token() -> None:
    tokens: list[str] = []

    async def send(attempt: Attempt) -> None:
        tokens.append(attempt.token)

    for attempt in (PLAIN, DOUBTFUL):
        await dispatch(Scripted(send=send), attempt, in_doubt="resend")
    assert tokens == [str(PLAIN.id)] * 2


async def test_a_token_that_may_be_forgotten_is_not_trusted() -> None:
    transport = Scripted(send=AssertionError)
    outcome = await dispatch(transport, DOUBTFUL, in_doubt="resend", token_ttl_seconds=60.0)
    assert seen(outcome) == Is("park·held", "TOKEN_FORGOTTEN", 1, in_doubt=True)
    assert transport.calls == []


@pytest.mark.req("G-18")
@pytest.mark.parametrize(("in_doubt", "reason"), [("resend", "dead"), ("hold", "held"), ("lookup", "held")])
async def test_what_crashed_too_often_is_parked_without_being_tried(in_doubt: str, reason: str) -> None:
    transport = Scripted(send=AssertionError, lookup=AssertionError)
    outcome = await dispatch(transport, replace(DOUBTFUL, crashes=3), in_doubt=in_doubt)
    assert seen(outcome) == Is(f"park·{reason}", "CRASHED", 1, in_doubt=True)
    assert transport.calls == []


@pytest.mark.req("G-27")
@pytest.mark.parametrize("attempt", [PLAIN, DOUBTFUL])
@pytest.mark.parametrize(
    ("kept", "expected"),
    [
        (Delivered("r-1", {"a": 1}), "close·delivered"),
        (Advance("second"), "advance"),
        (Retryable("BUSY"), "retry"),
        (Terminal("NO"), "park·dead"),
        (Unknown("LOST"), "retry"),
    ],
)
async def test_an_answer_that_is_kept_is_used_and_nothing_is_sent(
    attempt: Attempt, kept: Answer, expected: str
) -> None:
    transport = Scripted(send=AssertionError, validate=AssertionError, lookup=AssertionError)
    outcome = await dispatch(transport, replace(attempt, kept_answer=to_json(kept)), in_doubt="lookup")
    # G-18: refused now, and an earlier send may have had its effect.
    held = isinstance(kept, Terminal) and attempt.in_doubt
    assert seen(outcome).what == ("park·held" if held else expected)
    assert outcome.settlement.answer == kept
    assert transport.calls == []


@pytest.mark.req("G-27")
@pytest.mark.parametrize("kept", [{}, {"answer": "postponed"}, {"answer": "delivered", "mood": "good"}])
async def test_a_kept_answer_of_another_version_stays_unrecorded_and_nothing_is_sent(kept: Mapping[str, Any]) -> None:
    transport = Scripted(send=AssertionError)
    outcome = await dispatch(transport, m.attempt(kept_answer=kept))
    assert seen(outcome) == Is("park·unrecorded", "KEPT_ANSWER_INVALID")
    assert transport.calls == []


# validate

VALIDATIONS: Mapping[str, tuple[Step, Is]] = {
    "Terminal": (Raised(Terminal("BAD_ADDRESS")), Is("park·dead", "BAD_ADDRESS", 1)),
    "Retryable": (Raised(Retryable("NOT_YET")), Is("retry", "NOT_YET", 1)),
    "Unknown": (Raised(Unknown("ODD")), Is("park·dead", "UNCLASSIFIED", 1)),
    "Delivered": (Raised(Delivered()), Is("park·dead", "UNCLASSIFIED", 1)),
    "exception": (KeyError("x"), Is("park·dead", "UNCLASSIFIED", 1)),
    "SystemExit": (SystemExit(1), Is("park·dead", "UNCLASSIFIED", 1)),
    "CancelledError of its own": (asyncio.CancelledError(), Is("park·dead", "UNCLASSIFIED", 1)),
    "TimeoutError": (TimeoutError(), Is("retry", "VALIDATE_TIMEOUT", 1)),
}


@pytest.mark.req("G-18")
@pytest.mark.parametrize("name", VALIDATIONS)
async def test_what_validate_raises_parks_the_message_and_nothing_is_sent(name: str) -> None:
    step, expected = VALIDATIONS[name]
    transport = Scripted(send=AssertionError, validate=step)
    outcome = await dispatch(transport, PLAIN)
    assert seen(outcome) == expected
    assert not outcome.settlement.in_doubt
    assert transport.calls == ["validate"]


@pytest.mark.req("G-18")
async def test_validate_that_passes_is_followed_by_the_send_whatever_it_returned() -> None:
    for returned in (None, True, "ok"):
        transport = Scripted(validate=returned)
        assert seen(await dispatch(transport, PLAIN)).what == "close·delivered"
        assert transport.calls == ["validate", "send"]


async def test_validate_that_takes_too_long_is_tried_again() -> None:
    outcome = await Stage(Scripted(validate=hang), timeout_seconds=0.01).dispatch(PLAIN)
    assert seen(outcome) == Is("retry", "VALIDATE_TIMEOUT", 1)


@pytest.mark.parametrize("rules", [{"in_doubt": "resend"}, {"in_doubt": "lookup"}])
async def test_a_message_that_is_in_doubt_and_does_not_validate_is_parked(rules: dict[str, Any]) -> None:
    """After absent the doubt is gone; where nobody was asked it stays with the dead letter."""
    transport = Scripted(validate=Raised(Terminal("BAD")), lookup=Absent())
    outcome = await dispatch(transport, DOUBTFUL, **rules)
    assert seen(outcome) == Is("park·dead", "BAD", 2, in_doubt=rules["in_doubt"] == "resend")


@pytest.mark.req("G-09")
@pytest.mark.parametrize("step", ["validate", "lookup", "send"])
async def test_what_was_cut_off_before_it_began_is_handed_back(step: str) -> None:
    """No thread was free for it: no verdict, no bug, nothing spent."""
    steps: dict[str, Step] = {"lookup": Absent(), step: NotBegun}
    stage = Stage(Scripted(**steps), in_doubt="lookup")
    with pytest.raises(NotBegun):
        await stage.dispatch(DOUBTFUL)


@pytest.mark.req("G-09")
@pytest.mark.parametrize("step", ["validate", "lookup", "send"])
async def test_a_cancellation_from_outside_is_handed_on(step: str) -> None:
    steps: dict[str, Step] = {"lookup": Absent(), step: hang}
    stage = Stage(Scripted(**steps), in_doubt="lookup")
    running = asyncio.create_task(stage.dispatch(DOUBTFUL))
    while step not in stage.transport.calls:  # noqa: ASYNC110 - each turn of the loop is one step of the dispatch
        await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


@pytest.mark.parametrize("attempt", [PLAIN, DOUBTFUL])
async def test_nothing_is_sent_on_a_claim_that_may_be_lost(attempt: Attempt) -> None:
    """Asked right before the first byte: a lookup or a validation may have taken longer than the lease."""
    transport = Scripted(lookup=Absent(), validate=None)
    stage = Stage(transport, in_doubt="lookup")
    with pytest.raises(NotBegun):
        await stage.dispatch(attempt, may_send=lambda: False)
    assert "send" not in transport.calls


@pytest.mark.parametrize("code", ["TIMEOUT", "CUT_OFF"])
async def test_what_is_cut_off_is_unknown(code: str) -> None:
    stage = Stage(Scripted())
    stage.clock.advance(7.5)
    outcome = stage.dispatcher.cut_off(PLAIN, code, claimed_at=0.0, began=7.0)
    assert seen(outcome) == Is("retry", code, 1, in_doubt=True)
    assert outcome.latency_ms == 500
    assert outcome.settlement.answer == Unknown(code)


@pytest.mark.req("G-13")
@pytest.mark.parametrize(("in_doubt", "since"), [("lookup", None), ("resend", DOUBTFUL.in_doubt_since)])
def test_what_is_cut_off_after_a_lookup_may_have_been_sent_again_so_its_doubt_is_new(
    in_doubt: str, since: datetime | None
) -> None:
    """Where it is not asked about, the doubt keeps its age: how long a token is trusted counts from there."""
    stage = Stage(Scripted(lookup=Absent()), in_doubt=in_doubt)
    outcome = stage.dispatcher.cut_off(DOUBTFUL, "TIMEOUT", claimed_at=0.0, began=0.0)
    assert outcome.settlement.in_doubt
    assert outcome.attempt.in_doubt_since == since


@pytest.mark.req("G-13")
async def test_absent_is_as_old_as_the_question_however_long_the_answer_took() -> None:
    async def slowly(_: Attempt) -> Absent:
        stage.clock.advance(20)
        return Absent()

    transport = Scripted(lookup=slowly)
    stage = Stage(transport, in_doubt="lookup", lookup_after_seconds=10)
    outcome = await stage.dispatch(replace(DOUBTFUL, in_doubt_since=DOUBTFUL.claimed_at))
    assert outcome.settlement.error_class == "ABSENT_TOO_EARLY"
    assert transport.calls == ["lookup"]


async def test_every_step_is_told_with_its_end() -> None:
    stage = Stage(Scripted(send=Terminal("NO"), validate=None, lookup=Absent()), in_doubt="lookup")
    await stage.dispatch(replace(DOUBTFUL, in_doubt_since=m.at(-100) - timedelta(days=1)))
    steps = ("lookup", "validate", "send")
    assert stage.events == [f"{step}.{edge}" for step in steps for edge in ("start", "stop")]


MONEY: dict[str, Any] = {
    "in_doubt": "lookup",
    "money": True,
    "token_ttl_seconds": 86_400.0,
    "lookup_after_seconds": 10.0,
}


@pytest.mark.req("P-05")
async def test_absent_is_not_believed_while_an_abandoned_send_of_that_money_runs_on() -> None:
    """A handler that ignores its cancellation; lookup_after counts from its end."""
    may_end = asyncio.Event()

    async def deaf(_: Attempt) -> None:
        await may_end.wait()

    transport = Scripted(send=deaf, lookup=Absent())
    stage = Stage(transport, **MONEY)
    deaf_send = asyncio.create_task(stage.dispatch(PLAIN))
    await asyncio.sleep(0)
    stage.dispatcher.cut_off(PLAIN, "TIMEOUT", claimed_at=0.0, began=0.0)
    again = doubtful(in_doubt_since=m.at(-100), claimed_at=m.START)
    too_early = Is("retry", "ABSENT_TOO_EARLY", 1, in_doubt=True)
    assert seen(await stage.dispatch(again)) == too_early
    may_end.set()
    await deaf_send
    stage.clock.advance(9)
    assert seen(await stage.dispatch(again)) == too_early
    stage.clock.advance(1)
    assert seen(await stage.dispatch(again)).what == "close·delivered"
    assert transport.calls.count("send") == 2


@pytest.mark.req("P-05")
async def test_absent_is_not_believed_while_the_thread_of_a_def_still_pays() -> None:
    may_end, begun, paid = threading.Event(), threading.Event(), []

    def pay(attempt: Attempt) -> None:
        begun.set()
        may_end.wait()
        paid.append(attempt.number)

    transport = FunctionTransport(pay, lookup=lambda _: Absent(), threads=2)
    stage = Stage(transport, **{**MONEY, "lookups_are_immediate": True, "lookup_after_seconds": 0.0})
    cut = asyncio.create_task(stage.dispatch(PLAIN))
    await asyncio.to_thread(begun.wait)
    cut.cancel()
    await asyncio.wait([cut])
    try:
        async with asyncio.timeout(5):
            outcome = await stage.dispatch(DOUBTFUL)
    finally:
        may_end.set()
    assert seen(outcome) == Is("retry", "ABSENT_TOO_EARLY", 1, in_doubt=True)
    async with asyncio.timeout(5):
        while not transport.quiet_seconds(PLAIN.id):  # noqa: ASYNC110 - a thread of its own ends it
            await asyncio.sleep(0.001)
    assert seen(await stage.dispatch(DOUBTFUL)).what == "close·delivered"
    assert paid == [1, 2]
    transport.close()


@pytest.mark.req("P-05")
@pytest.mark.parametrize(("money", "what"), [(True, "park·held"), (False, "park·dead")])
async def test_a_budget_made_smaller_than_what_is_spent_buys_no_send(money: bool, what: str) -> None:
    transport = Scripted(lookup=Absent())
    rules = {**MONEY, "money": money, "policy": Policy(attempts=2)}
    assert seen(await dispatch(transport, doubtful(spent=8), **rules)).what == what
    assert seen(await dispatch(transport, m.attempt(spent=8), **rules)) == Is("park·dead", "BUDGET_SPENT", 8)
    assert transport.calls == ["lookup"]
