"""What the relay does with an event, as the document's columns show it (O4, O6, O10)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import redrive
from redrive.errors import InvalidValue
from redrive.systems import tenant
from redrive.testing import ManualClock
from tests.systems.tenant.conftest import TYPES, Conn, delivered_by, outbox, published, row

pytestmark = pytest.mark.req("T-07")
BUSY = redrive.Retryable("BUSY", "the subscriber is busy")


def test_an_event_that_waits_has_the_columns_of_a_new_one(conn: Conn, acme: str) -> None:
    box, _ = outbox()
    added = box.writer.add(conn, acme, published())
    found = row(conn, added.id)
    assert found.pop("CreatedAt") is not None
    assert found == {
        "Id": added.id,
        "TenantId": acme,
        "EventType": "DefinitionPublished",
        "Payload": {"definition": "d-1"},
        "IdempotencyKey": added.key,
        "ProcessedAt": None,
        "IsProcessed": False,
        "RetryCount": 0,
        "Error": None,
        "NextAttemptAt": None,
        "DeadLetter": False,
    }


@pytest.mark.seed("003", "Dispatcher_Marks_Processed")
@pytest.mark.seed("003", "Dispatcher_Sets_ProcessedAt_OnSuccess")
def test_a_delivered_event_has_the_time_of_its_delivery(conn: Conn, acme: str) -> None:
    box, subscriber = outbox(None)
    added = box.writer.add(conn, acme, published())
    assert delivered_by(conn, box).delivered == [added.id]
    found = row(conn, added.id)
    assert found["ProcessedAt"] >= found["CreatedAt"]
    assert (found["IsProcessed"], found["RetryCount"], found["Error"]) == (True, 0, None)
    assert [(one.kind, one.tenant, one.key) for one in subscriber.sent] == [
        ("DefinitionPublished", acme, str(added.key))
    ]


@pytest.mark.seed("003", "Dispatcher_Retry_OnFailure")
@pytest.mark.seed("003", "Dispatcher_Sets_Error_And_Increments_Retry_OnFailure")
def test_a_failure_is_counted_and_said_and_has_a_next_time(conn: Conn, acme: str) -> None:
    box, _ = outbox(BUSY, BUSY, None, jitter=0.0)
    added = box.writer.add(conn, acme, published())
    clock = ManualClock()
    for count, pause in ((1, 10), (2, 20)):
        assert delivered_by(conn, box, clock).retried == [added.id]
        found = row(conn, added.id)
        assert (found["RetryCount"], found["Error"]) == (count, "the subscriber is busy")
        assert (found["ProcessedAt"], found["IsProcessed"], found["DeadLetter"]) == (None, False, False)
        waits = found["NextAttemptAt"] - found["CreatedAt"]
        assert timedelta(seconds=pause) <= waits < timedelta(seconds=pause + 35)
        clock.advance(pause)


@pytest.mark.seed("003", "Dispatcher_Clears_Error_OnSuccess")
def test_a_success_clears_the_error(conn: Conn, acme: str) -> None:
    box, _ = outbox(BUSY, None)
    added = box.writer.add(conn, acme, published())
    delivered_by(conn, box, to_the_end=True)
    found = row(conn, added.id)
    assert (found["Error"], found["RetryCount"], found["NextAttemptAt"]) == (None, 1, None)
    assert found["ProcessedAt"] is not None


@pytest.mark.seed("003", "Retry_Stops_After_MaxRetries")
@pytest.mark.seed("003", "Dispatcher_Retry_Until_MaxRetries_Reached")
@pytest.mark.seed("003", "Dispatcher_NoRetry_After_MaxRetries")
@pytest.mark.parametrize("most", [1, 3, 5])
def test_after_max_retries_it_is_a_dead_letter_and_is_not_sent_again(conn: Conn, acme: str, most: int) -> None:
    box, subscriber = outbox(*[BUSY] * most, max_retries=most)
    added = box.writer.add(conn, acme, published())
    clock = ManualClock()
    assert delivered_by(conn, box, clock, to_the_end=True).parked == [added.id]
    clock.advance(86_400)
    delivered_by(conn, box, clock, to_the_end=True)
    assert len(subscriber.sent) == most
    found = row(conn, added.id)
    assert (found["DeadLetter"], found["RetryCount"], found["Error"]) == (True, most, "the subscriber is busy")
    assert (found["ProcessedAt"], found["IsProcessed"]) == (None, False)


@pytest.mark.seed("003", "Dispatcher_Skips_AlreadyProcessed")
def test_a_processed_event_is_not_sent_again(conn: Conn, acme: str) -> None:
    box, subscriber = outbox(None)
    box.writer.add(conn, acme, published())
    delivered_by(conn, box)
    assert box.writer.add(conn, acme, published()).state == "delivered"
    delivered_by(conn, box, to_the_end=True)
    assert len(subscriber.sent) == 1
    subscriber.assert_used_up()


@pytest.mark.seed("003", "Error_Truncated_When_TooLong")
@pytest.mark.seed("003", "Outbox_Error_Truncated_When_TooLong")
@pytest.mark.parametrize(("longest", "characters"), [(100, 100), (2000, 2000), (65_536, 19_999)])
def test_an_error_is_kept_up_to_its_length(conn: Conn, acme: str, longest: int, characters: int) -> None:
    text = "word " * 4000  # 20,000 characters; the last space is not kept
    box, _ = outbox(redrive.Retryable("BUSY", text), max_retries=1, max_error_text_length=longest)
    added = box.writer.add(conn, acme, published())
    delivered_by(conn, box)
    error = row(conn, added.id)["Error"]
    assert len(error) == characters
    assert text.startswith(error)


@pytest.mark.req("G-19")
@pytest.mark.parametrize("length", [99, 65_537, True, 100.0])
def test_the_length_of_an_error_has_bounds_in_the_engine_too(length: Any) -> None:
    with pytest.raises(InvalidValue, match=r"error_text_max of 'mail' is .* from 100 to 65536"):
        redrive.App().transport("mail", outbox()[1], error_text_max=length)


@pytest.mark.req("T-09")
def test_an_event_that_ended_otherwise_is_terminal_and_not_processed(conn: Conn, acme: str) -> None:
    box, _ = outbox()
    added = box.writer.add(conn, acme, published())
    assert redrive.cancel(conn, added.id) == "cancelled"
    found = row(conn, added.id)
    assert (found["IsProcessed"], found["ProcessedAt"]) == (True, None)


def test_one_tenants_trouble_is_a_limit_key_of_its_own(conn: Conn, acme: str) -> None:
    box = tenant.Outbox(TYPES, breaker=redrive.Breaker(failures=1))
    sent = []

    @box.deliver
    async def deliver(event: redrive.Attempt) -> None:
        sent.append(event.tenant)
        if event.tenant == acme:
            raise redrive.Retryable("DOWN", destination_down=True)

    for number in range(4):
        box.writer.add(conn, acme, published(version=number))
    delivered_by(conn, box)
    for number in range(4):
        box.writer.add(conn, f"{acme}-2", published(version=number))
    delivered_by(conn, box)
    assert sent.count(f"{acme}-2") == 4
    assert sent.count(acme) < 4
