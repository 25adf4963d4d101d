"""`redrive payments audit`: what happened to a payment reads as a story, from the archive alone (P-07)."""

from __future__ import annotations

import asyncio
import re

import psycopg
import pytest
from click.testing import Result

from redrive.answers import Delivered, Retryable, Terminal, Unknown
from redrive.message import MessageId, ParkReason
from redrive.policy import Settlement
from redrive.store.runtime.postgres import PostgresStore
from redrive.systems import payments
from tests.support import messages as m
from tests.systems.payments.conftest import Run, act, answered, claimed, instruction

pytestmark = pytest.mark.req("P-07")


def submitted(dsn: str, participant: str, **other: str) -> MessageId:
    with psycopg.connect(dsn) as conn:
        return payments.submit(conn, instruction(participant, **other)).outbox_id


def story_of(result: Result) -> list[str]:
    """The lines with what varies taken out: times, ids, relays."""
    assert result.exit_code == 0, result.stderr
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ|\d\d:\d\d:\d\d", "T", result.stdout)
    text = re.sub(r"…[0-9a-f]{8}\b", "…W", text)
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def test_what_people_did_is_in_the_story_with_their_reasons(run: Run, paying: str, participant: str) -> None:
    id = submitted(paying, participant)
    answered(paying, id, "held")
    act(paying, "confirm", id)
    lines = story_of(run("audit", f"{participant}/1"))
    assert any("HELD" in line and "It is held until a person finds out." in line for line in lines)
    assert lines[-2] == "T CONFIRM anna: it is confirmed as paid. Reason: a test."


def test_a_second_key_of_an_instruction_is_part_of_its_story(run: Run, paying: str, participant: str) -> None:
    answered(paying, submitted(paying, participant), "terminal")
    answered(paying, submitted(paying, participant, idempotency_key="second"), None)
    lines = story_of(run("audit", f"{participant}/1"))
    states = [line.split()[1] for line in lines[2:-2]]
    assert states == ["SUBMITTED", "FAILED", "DISCARD", "SUBMITTED", "DISPATCHING"]
    assert "payments: it is given up. Reason: submitted again under the key second." in lines[4]
    assert lines[-1] == "Now: number 2, key second, is leased."


@pytest.mark.parametrize(
    ("settlement", "text", "told"),
    [
        (
            m.park(answer=Terminal("INSUFFICIENT_FUNDS"), error_class="INSUFFICIENT_FUNDS"),
            "Rail 402 INSUFFICIENT_FUNDS",
            "was refused: Rail 402 INSUFFICIENT_FUNDS. That is final: it was not paid.",
        ),
        (
            m.park(answer=Retryable("UNAVAILABLE"), error_class="UNAVAILABLE", exhausted=True),
            "Rail 503 UNAVAILABLE",
            "gave up: Rail 503 UNAVAILABLE. That is final: it was not paid.",
        ),
        (
            m.park(ParkReason.HELD, error_class="ABSENT_AFTER_DOUBT"),
            None,
            "cannot know whether it was paid: ABSENT_AFTER_DOUBT. It is held until a person finds out.",
        ),
        (
            m.retry(Unknown("TIMEOUT"), error_class="TIMEOUT", in_doubt=True),
            None,
            "does not know whether it was paid: TIMEOUT. The rail comes first next time. Next at T.",
        ),
        (
            m.retry(Unknown("IN_PROGRESS", from_lookup=True), error_class="IN_PROGRESS", in_doubt=True),
            "Lookup 200 IN_PROGRESS",
            "asked the rail, which could not tell: Lookup 200 IN_PROGRESS. It was not sent again. Next at T.",
        ),
        (
            m.close(Delivered("r-1", {"rail_code": "ACCEPTED", "by": "lookup"})),
            None,
            "asked the rail and found it paid (the rail said ACCEPTED), reference r-1.",
        ),
    ],
)
def test_each_outcome_is_told_in_its_own_words(
    run: Run, paying: str, participant: str, settlement: Settlement, text: str | None, told: str
) -> None:
    async def settled(id: MessageId) -> None:
        async with PostgresStore(paying) as store:
            attempt = await claimed(store, id)
            await store.settle(m.WORKER, [m.outcome(attempt, settlement, text=text)])

    asyncio.run(settled(submitted(paying, participant)))
    assert story_of(run("audit", f"{participant}/1"))[3].endswith(f"Attempt 1 (relay …W) {told}")


def test_an_instruction_that_nobody_submitted_has_no_story(run: Run) -> None:
    assert run("audit", "nothing").exit_code == 3
