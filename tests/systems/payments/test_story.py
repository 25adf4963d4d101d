"""The story of a payment whose relay was lost, and came back when everything was over (P-07)."""

from __future__ import annotations

import asyncio
import json

import pytest

from redrive.answers import Delivered, Retryable
from redrive.message import MessageId
from redrive.store.runtime.postgres import PostgresStore
from tests.support import messages as m
from tests.systems.payments.conftest import Run, claimed
from tests.systems.payments.test_audit import story_of, submitted

pytestmark = pytest.mark.req("P-07")
DESTINATION = "payments.sepa"
LOST = (
    "was lost with it in hand (WORKER_DIED). Whether it was paid is not known; it comes back with the same token and"
    " the same number."
)
LATE = (
    "came back with its answer: paid, reference rail-77. Its claim had been lost, so the answer was refused, and kept"
    " as evidence."
)


@pytest.fixture
def paying(database: str) -> str:
    """A database for each test: here claims run out."""
    return database


async def _zombie_retry_success_and_a_late_answer(dsn: str, id: MessageId) -> None:
    """As it goes when a relay freezes with a payment in hand, and wakes up when everything is over."""
    async with PostgresStore(dsn) as store:
        first = await claimed(store, id)
        await store.reap(limit=10, worker=m.WORKER)
        second = (await store.claim_suspect(m.OTHER_WORKER, [DESTINATION], lease_seconds=60)).attempts[0]
        unavailable = Retryable("UNAVAILABLE", "Rail 503 UNAVAILABLE")
        again = m.retry(unavailable, error_class="UNAVAILABLE", in_doubt=False)
        await store.settle(m.OTHER_WORKER, [m.outcome(second, again, text=unavailable.text)])
        third = await claimed(store, id, worker=m.OTHER_WORKER)
        paid = m.close(Delivered("rail-77", {"rail_code": "ACCEPTED"}))
        await store.settle(m.OTHER_WORKER, [m.outcome(third, paid)])
        await store.settle(m.WORKER, [m.outcome(first, m.close(Delivered("rail-77")))])


def test_a_payment_with_a_zombie_a_retry_a_success_and_a_late_answer_reads_as_a_story(
    run: Run, paying: str, participant: str
) -> None:
    id = submitted(paying, participant)
    asyncio.run(_zombie_retry_success_and_a_late_answer(paying, id))
    assert story_of(run("audit", f"{participant}/1")) == [
        f"{participant}/1: 12.34 EUR of {participant} by sepa to iban …6199",
        "when (UTC) state what happened",
        f"T SUBMITTED Submitted as number 1 of {participant}, under the key {participant}/1: 12.34 EUR by sepa.",
        f"T ZOMBIE_REQUEUE Attempt 1 (relay …W) {LOST}",
        "T RETRYABLE Attempt 2 (relay …W) could not pay it: Rail 503 UNAVAILABLE. Nothing was paid. Next at T.",
        "T DISPATCHED Attempt 3 (relay …W) paid it (the rail said ACCEPTED), reference rail-77.",
        f"T LATE_ANSWER Attempt 1 (relay …W) {LATE}",
        f"Now: number 1, key {participant}/1, is delivered.",
    ]


@pytest.mark.req("P-04")
def test_the_document_has_every_event_with_who_when_what_and_why(run: Run, paying: str, participant: str) -> None:
    id = submitted(paying, participant)
    asyncio.run(_zombie_retry_success_and_a_late_answer(paying, id))
    document = json.loads(run("audit", f"{participant}/1", "--json").stdout)
    events = document["events"]
    assert [one["state"] for one in events] == ["SUBMITTED", "ZOMBIE_REQUEUE", "RETRYABLE", "DISPATCHED", "LATE_ANSWER"]
    assert [one["attempt_no"] for one in events] == [None, 1, 2, 3, 1]
    paid = events[3]
    assert (paid["rail_code"], paid["reference"], paid["latency_ms"]) == ("ACCEPTED", "rail-77", 5)
    assert paid["worker"] == str(m.OTHER_WORKER)
    assert {one["outbox_id"] for one in events} == {str(id)}
    assert [one["at"] for one in events] == sorted(one["at"] for one in events)
