"""What the archive and the dead letter know about an attempt: what is useful, nothing of the message's data (G-15)."""

from __future__ import annotations

import asyncio
import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest

from redrive.answers import Answer, CannotTell, Retryable, Terminal, Unknown
from redrive.message import Attempt
from redrive.ports import Outcome
from tests.relay.scripted import Raised, Scripted, Stage, Step, dispatch
from tests.support import messages as m

pytestmark = pytest.mark.req("G-15")

SECRET = "hunter2@example.org"
ATTEMPT = m.attempt(number=4, spent=2, lookups=1, body=json.dumps({"to": SECRET}).encode(), tenant=SECRET, key=SECRET)


class ShopError(Exception): ...


async def fail(attempt: Attempt) -> None:
    password = attempt.payload["to"]  # a local variable, never to be seen again
    try:
        raise ShopError(password)
    except ShopError as error:
        raise ValueError(f"cannot send to {password}") from error


def everything(outcome: Outcome) -> str:
    """All that would be stored besides the fence."""
    settlement = outcome.settlement
    said = [getattr(settlement.answer, name, None) for name in ("code", "reference")]
    return repr((outcome.text, outcome.stack, dict(outcome.context), said, settlement.error_class))


@pytest.mark.parametrize(
    "steps",
    [
        {"send": fail},
        {"send": Raised(Terminal("NO", text=f"no mailbox {SECRET}"))},
        {"send": Raised(Retryable("NO", text=f"password: {SECRET}"))},
        {"send": Raised(Unknown("NO", text=f"'{SECRET}'"))},
        {"send": ShopError(SECRET)},
        {"send": SystemExit(SECRET)},
        {"send": SECRET},
        {"validate": fail},
        {"lookup": fail},
        {"lookup": CannotTell("LATER", SECRET)},
    ],
    ids=lambda steps: next(iter(steps)),
)
async def test_no_data_of_the_message_gets_into_the_evidence(steps: dict[str, Step]) -> None:
    doubt: dict[str, Any] = {"in_doubt_since": m.at(-100)} if "lookup" in steps else {}
    rules: dict[str, Any] = {"in_doubt": "lookup"} if "lookup" in steps else {}
    outcome = await dispatch(Scripted(**steps), replace(ATTEMPT, **doubt), **rules)
    for piece in (SECRET, "hunter2", "example.org"):
        assert piece not in everything(outcome)


async def test_a_dead_letter_says_what_happened_where_and_to_which_body() -> None:
    stage = Stage(Scripted(send=fail))
    outcome = await stage.dispatch(ATTEMPT)
    assert outcome.context == {
        "message_id": str(ATTEMPT.id),
        "attempt": 4,
        "spent": 3,
        "lookups": 1,
        "crashes": 0,
        "stage": "first",
        "version": 1,
        "token": ATTEMPT.token,
        "in_doubt": True,
        "exhausted": False,
        "upstream_code": "UNCLASSIFIED",
        "error_type": "ValueError",
        "content_type": "application/json",
        "body_bytes": len(ATTEMPT.body),
        "body_sha256": hashlib.sha256(ATTEMPT.body).hexdigest(),
        "policy_version": stage.rules.version,
    }
    assert outcome.text == "ValueError"
    assert outcome.stack is not None
    places = outcome.stack.splitlines()
    assert places[0] == "ValueError"
    assert f"caused by {ShopError.__module__}.ShopError" in places
    assert sum("tests/relay/test_dispatch_evidence.py:" in place and " in fail" in place for place in places) == 2
    assert outcome.policy_version == stage.rules.version


async def test_context_and_stack_are_kept_only_where_somebody_will_look_for_them() -> None:
    retried = await dispatch(Scripted(send=Retryable("BUSY")), ATTEMPT)
    assert (retried.context, retried.stack) == ({}, None)
    parked = await dispatch(Scripted(send=Terminal("NO")), ATTEMPT)
    assert parked.context["upstream_code"] == "NO"
    assert parked.stack is None
    delivered = await dispatch(Scripted(), ATTEMPT)
    assert (delivered.text, delivered.stack, delivered.context) == (None, None, {})


async def test_the_explanation_of_an_answer_is_kept_in_plain_words() -> None:
    outcome = await dispatch(Scripted(send=Terminal("NO", text="mailbox full, quota 90 used")), ATTEMPT)
    assert outcome.text == "mailbox full, quota 90 used"


async def test_a_long_explanation_is_cut_to_two_thousand_characters() -> None:
    outcome = await dispatch(Scripted(send=Terminal("NO", text="word " * 5000)), ATTEMPT)
    assert outcome.text is not None
    assert len(outcome.text) <= 2000


async def test_latency_is_from_dispatch_to_answer_in_milliseconds() -> None:
    stage = Stage(Scripted())

    async def send(attempt: Attempt) -> Answer:
        stage.clock.advance(1.25)
        return Retryable("BUSY")

    stage.transport._send = send
    stage.clock.advance(100)  # it waited in hand
    outcome = await stage.dispatcher.dispatch(ATTEMPT, claimed_at=0.0)
    assert outcome.latency_ms == 1250


async def test_classification_by_the_transport_is_used_and_the_exception_is_still_shown() -> None:
    transport = Scripted(send=ShopError(SECRET))
    transport.classify = lambda error: Terminal("OUT_OF_STOCK") if isinstance(error, ShopError) else None
    outcome = await dispatch(transport, ATTEMPT)
    assert outcome.settlement.error_class == "OUT_OF_STOCK"
    assert outcome.context["error_type"] == f"{ShopError.__module__}.ShopError"


@pytest.mark.req("G-10")
@pytest.mark.parametrize("verdict", ["text", 5, Unknown, Terminal("NO", bug=True)])
async def test_a_classification_that_is_none_is_a_bug(verdict: Any) -> None:
    transport = Scripted(send=ShopError())
    transport.classify = lambda _: verdict
    outcome = await dispatch(transport, ATTEMPT)
    assert getattr(outcome.settlement.answer, "bug", False)


@pytest.mark.req("G-10")
async def test_a_classification_that_raises_is_a_bug() -> None:
    transport = Scripted(send=ShopError())

    def broken(error: BaseException) -> Answer:
        raise asyncio.QueueEmpty

    transport.classify = broken
    outcome = await dispatch(transport, ATTEMPT)
    assert outcome.settlement.error_class == "UNCLASSIFIED"
