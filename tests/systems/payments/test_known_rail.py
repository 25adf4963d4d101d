"""A rail that relays have registered moves money, so people need a second one; the application's own proof does not."""

from __future__ import annotations

import psycopg
import pytest

from redrive.systems import payments
from tests.systems.payments.conftest import act, answered, instruction, rows


@pytest.mark.req("P-05")
def test_what_a_second_key_replaces_is_given_up_without_a_second_person(paying: str, participant: str) -> None:
    with psycopg.connect(paying) as conn:
        conn.execute("INSERT INTO redrive.destination (name, money) VALUES ('payments.sepa', true)")
        first = payments.submit(conn, instruction(participant))
    answered(paying, first.outbox_id, "terminal")
    assert act(paying, "discard", first.outbox_id) == "second_person"

    with psycopg.connect(paying) as conn:
        second = payments.submit(conn, instruction(participant, idempotency_key="second"))

    assert (second.sequence_id, second.already_existed) == (2, False)
    assert rows(paying, "SELECT redrive.state_of(%s)", first.outbox_id) == [("discarded",)]
    assert act(paying, "requeue", first.outbox_id) == "discarded"
