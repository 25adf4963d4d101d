"""The demo's own check must see every way in which a promise can be broken."""

from __future__ import annotations

from uuid import UUID

import pytest

from redrive.demo.check import Sent, violations

ONE, TWO = UUID(int=1), UUID(int=2)


def sent(message: UUID = ONE, *, state: str = "delivered", reason: str | None = None, destination: str = "erp") -> Sent:
    return Sent(7, message, destination, state, reason)


def test_delivered_once_and_parked_never_is_as_it_should_be() -> None:
    parked = sent(TWO, state="parked", reason="dead HTTP_400")
    assert violations([sent(), parked], {"erp": [str(ONE)]}) == []


def test_nothing_at_all_is_as_it_should_be() -> None:
    assert violations([], {"erp": []}) == []


@pytest.mark.parametrize("times", [0, 2, 3])
def test_delivered_and_not_exactly_once_in_the_ledger_is_a_violation(times: int) -> None:
    (found,) = violations([sent()], {"erp": [str(ONE)] * times})
    assert found == f"Order 7, erp ({ONE}) is delivered, and its ledger has it {times} times."


def test_parked_and_in_the_ledger_is_a_violation() -> None:
    (found,) = violations([sent(state="parked", reason="held TIMEOUT")], {"erp": [str(ONE)]})
    assert found == f"Order 7, erp ({ONE}) is parked as held TIMEOUT, and its ledger has it 1 times."


@pytest.mark.parametrize("state", ["pending", "leased", "expired", "cancelled", "discarded", "none"])
def test_any_other_state_is_a_violation(state: str) -> None:
    (found,) = violations([sent(state=state)], {"erp": []})
    assert found == f"Order 7, erp ({ONE}) is {state}; it should be delivered or parked."


def test_a_token_that_no_order_asked_for_is_a_violation() -> None:
    assert violations([sent()], {"erp": [str(ONE), str(TWO)]}) == [f"erp received {TWO}, which no order asked for."]


def test_a_message_in_another_destinations_ledger_is_no_delivery() -> None:
    found = violations([sent()], {"erp": [], "mail": [str(ONE)]})
    assert len(found) == 1
    assert "its ledger has it 0 times" in found[0]


def test_every_violation_is_told() -> None:
    found = violations([sent(), sent(TWO, state="pending")], {"erp": [str(ONE), str(ONE)]})
    assert len(found) == 2
