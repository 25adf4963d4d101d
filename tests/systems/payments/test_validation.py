"""What may be paid, and what is refused with field, value and rule (P-02)."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from iso4217 import Currency

from redrive.systems.payments.validation import Instruction, PaymentRefused, checked, exact_amount
from tests.systems.payments.conftest import IBAN, instruction

pytestmark = pytest.mark.req("P-02")

US = {"routing_number": "111000025", "account_number": "123456789"}
PAYABLE = [one for one in Currency if one.exponent is not None]


@pytest.mark.parametrize(
    ("amount", "currency", "kept"),
    [
        ("12.34", "EUR", "12.34"),
        ("12.3", "EUR", "12.30"),
        (Decimal("12.3000"), "EUR", "12.30"),
        (7, "EUR", "7.00"),
        ("1500", "JPY", "1500"),
        ("1.234", "BHD", "1.234"),
        ("0.01", "USD", "0.01"),
        ("999999999999999.99", "USD", "999999999999999.99"),
    ],
)
def test_an_amount_is_kept_with_the_decimals_of_its_currency(amount: Any, currency: str, kept: str) -> None:
    wanted = instruction("p", amount=amount, currency=currency, rail_type="giro")
    assert checked(wanted).payload["amount"] == kept


@pytest.mark.parametrize(
    ("amount", "currency", "rule"),
    [
        (0, "EUR", "above 0"),
        ("0.00", "EUR", "above 0"),
        ("-1", "EUR", "above 0"),
        (-1, "EUR", "above 0"),
        (12.34, "EUR", "a float is never exact"),
        (float("nan"), "EUR", "a float is never exact"),
        (True, "EUR", "a float is never exact"),
        (None, "EUR", "a float is never exact"),
        ("12.345", "EUR", "EUR has 2 decimals"),
        ("1.5", "JPY", "JPY has 0 decimals"),
        ("1.2345", "BHD", "BHD has 3 decimals"),
        (Decimal("1e-400"), "EUR", "EUR has 2 decimals"),
        ("1e400", "EUR", "plain decimal text"),
        (Decimal("1e400"), "EUR", "at most 15 digits"),
        (10**400, "EUR", "a whole number"),
        ("1000000000000000", "EUR", "at most 15 digits"),
        (Decimal("NaN"), "EUR", "a Decimal"),
        (Decimal("Infinity"), "EUR", "a Decimal"),
        ("1,50", "EUR", "plain decimal text"),
        (" 1", "EUR", "plain decimal text"),
        ("١", "EUR", "plain decimal text"),
    ],
)
def test_an_amount_that_cannot_be_paid_exactly_is_refused(amount: Any, currency: str, rule: str) -> None:
    with pytest.raises(PaymentRefused, match=rule) as refused:
        checked(instruction("p", amount=amount, currency=currency, rail_type="giro"))
    assert (refused.value.reason, refused.value.field) == ("AMOUNT_INVALID", "amount")
    assert refused.value.value is amount


@given(minor=st.integers(1, 10**15 - 1), currency=st.sampled_from(PAYABLE))
def test_every_amount_in_minor_units_survives_to_the_last_one(minor: int, currency: Any) -> None:
    amount = Decimal(minor).scaleb(-currency.exponent)
    assert exact_amount(str(exact_amount(amount, currency)), currency) == amount


@pytest.mark.parametrize("currency", ["EURO", "eur", "XYZ", "", None, 978, "XAU", "XXX", "XTS"])
def test_a_currency_that_is_not_of_iso_4217_or_has_no_amounts_is_refused(currency: Any) -> None:
    with pytest.raises(PaymentRefused, match="ISO 4217") as refused:
        checked(instruction("p", currency=currency))
    assert (refused.value.reason, refused.value.field, refused.value.value) == (
        "CURRENCY_UNKNOWN",
        "currency",
        currency,
    )


@pytest.mark.parametrize("rail_type", ["sepa", "sepa_instant"])
@pytest.mark.parametrize("currency", ["JPY", "USD", "CHF"])
def test_sepa_pays_in_euros_only(rail_type: str, currency: str) -> None:
    wanted = instruction("p", rail_type=rail_type, currency=currency, amount=7)
    with pytest.raises(PaymentRefused, match=f"{rail_type} pays in EUR only") as refused:
        checked(wanted)
    assert (refused.value.reason, refused.value.field) == ("CURRENCY_UNKNOWN", "currency")
    assert checked(replace(wanted, currency="EUR")).currency == "EUR"
    assert checked(replace(wanted, rail_type="giro")).currency == currency


@pytest.mark.parametrize(
    ("rail", "destination"),
    [
        ("sepa", {"iban": IBAN}),
        ("sepa", {"iban": "DE75 5121 0800 1245 1261 99", "name": "Anna Ångström"}),
        ("sepa_instant", {"iban": "GB33BUKB20201555555555"}),
        ("ach", US),
        ("fedwire", {**US, "name": "Acme Ltd"}),
        ("card", {"card_token": "tok_1N3T00LkdIwHu7ix"}),
        ("wallet", {"wallet_id": "anna@example.com"}),
        ("giro", {"iban": IBAN}),
        ("giro", US),
    ],
)
def test_a_destination_that_fits_its_rail_is_accepted(rail: str, destination: dict[str, str]) -> None:
    kept = checked(instruction("p", rail_type=rail, destination=destination)).destination
    assert kept.keys() == destination.keys()
    assert " " not in kept.get("iban", "")


@pytest.mark.parametrize(
    ("rail", "destination", "field"),
    [
        ("sepa", {"iban": "DE75512108001245126198"}, "destination.iban"),
        ("sepa", {"iban": "DE7551210800124512619"}, "destination.iban"),
        ("sepa", {"iban": "XX75512108001245126199"}, "destination.iban"),
        ("sepa", {"iban": 75}, "destination.iban"),
        ("sepa", US, "destination"),
        ("sepa", {}, "destination"),
        ("sepa", {"iban": IBAN, "bic": "COBADEFF"}, "destination"),
        ("sepa", IBAN, "destination"),
        ("sepa", {"iban": IBAN, "name": "a\nb"}, "destination.name"),
        ("ach", {**US, "routing_number": "111000026"}, "destination.routing_number"),
        ("ach", {**US, "routing_number": "11100002"}, "destination.routing_number"),
        ("ach", {**US, "account_number": "12"}, "destination.account_number"),
        ("ach", {"routing_number": "111000025"}, "destination"),
        ("card", {"card_token": "4111111111111111"}, "destination.card_token"),
        ("card", {"card_token": "4111 1111 1111 1111"}, "destination.card_token"),
        ("card", {"card_token": "tok"}, "destination.card_token"),
        ("wallet", {"wallet_id": "a b"}, "destination.wallet_id"),
        ("giro", {"street": "x"}, "destination"),
    ],
)
def test_a_destination_that_cannot_exist_is_refused(rail: str, destination: Any, field: str) -> None:
    with pytest.raises(PaymentRefused) as refused:
        checked(instruction("p", rail_type=rail, destination=destination))
    assert (refused.value.reason, refused.value.field) == ("DESTINATION_INVALID", field)


def test_the_number_of_an_account_is_not_in_the_sentence() -> None:
    with pytest.raises(PaymentRefused) as refused:
        checked(instruction("p", destination={"iban": "DE75512108001245126198"}))
    assert "DE755121" not in str(refused.value)
    assert "…6198" in str(refused.value)


@pytest.mark.parametrize("field", ["instruction_id", "participant_id", "tenant"])
@pytest.mark.parametrize("value", ["", "x" * 501, "a\0b", "a\nb", "\ud800", None, 5])
def test_an_id_that_cannot_be_kept_is_refused(field: str, value: Any) -> None:
    with pytest.raises(PaymentRefused, match="FIELD_INVALID") as refused:
        checked(instruction("p", **{field: value}))
    assert refused.value.field == field


@pytest.mark.parametrize("rail", ["", "SEPA", "a/b", "x" * 51, None])
def test_a_rail_that_is_no_name_is_refused(rail: Any) -> None:
    with pytest.raises(PaymentRefused, match="RAIL_INVALID"):
        checked(instruction("p", rail_type=rail))


@pytest.mark.parametrize("field", ["sequence_id", "sequence", "outbox_id", "token"])
def test_what_the_database_gives_cannot_be_given_by_a_caller(field: str) -> None:
    with pytest.raises(PaymentRefused, match="SEQUENCE_GIVEN") as refused:
        Instruction.read({**vars(instruction("p")), field: 7})
    assert (refused.value.field, refused.value.value) == (field, 7)


def test_a_field_that_is_not_known_and_one_that_is_missing_are_refused() -> None:
    right = vars(instruction("p"))
    assert checked(Instruction.read(right)).participant_id == "p"
    with pytest.raises(PaymentRefused, match="FIELD_UNKNOWN: ammount"):
        Instruction.read({**right, "ammount": 1})
    with pytest.raises(PaymentRefused, match="FIELD_MISSING: amount is missing"):
        Instruction.read({name: value for name, value in right.items() if name != "amount"})
