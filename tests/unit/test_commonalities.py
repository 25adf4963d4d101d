"""What failed payloads share: the telling thing first, and nobody's data."""

from __future__ import annotations

from typing import Any

import pytest

from redrive.operate.desk.commonalities import commonalities

pytestmark = pytest.mark.req("G-16")

FAILED = [{"currency": None, "customer": f"c-{n}", "amount": n, "country": "DE"} for n in range(40)]
DELIVERED = [{"currency": "EUR", "customer": f"d-{n}", "amount": n, "country": "DE"} for n in range(20)]


def said(failed: list[Any], delivered: list[Any]) -> list[tuple[str, str, float]]:
    return [(one.path, one.says, round(one.share, 2)) for one in commonalities(failed, delivered).found]


def test_a_field_that_is_null_in_all_failed_and_in_no_delivered_one_is_the_finding() -> None:
    compared = commonalities(FAILED, DELIVERED)
    assert [(one.path, one.says) for one in compared.found] == [("currency", "= null")]
    assert (compared.found[0].share, compared.found[0].delivered_share) == (1.0, 0.0)
    assert (compared.failed, compared.delivered) == (40, 20)


def test_what_delivered_ones_have_too_is_not_told() -> None:
    assert not [one for one in said(FAILED, DELIVERED) if one[0] == "country"]


def test_a_missing_field_is_told() -> None:
    without = [{name: value for name, value in one.items() if name != "currency"} for one in FAILED]
    assert said(without, DELIVERED) == [("currency", "is missing", 1.0)]


def test_most_but_not_all_are_told_with_their_share() -> None:
    mixed = [*FAILED[:39], {**FAILED[39], "currency": "EUR"}]
    assert said(mixed, DELIVERED)[0] == ("currency", "= null", 0.97)


def test_with_nothing_to_compare_with_only_what_looks_wrong_is_told() -> None:
    assert said(FAILED, []) == [("currency", "= null", 1.0)]


@pytest.mark.parametrize(
    "data", ["ada@example.com", "DE89 3704 0044 0532 0130 00", "+49 170 1234567", "c-4711", 4111111111111111]
)
def test_data_that_is_not_a_plain_word_is_never_named(data: Any) -> None:
    shared = [{**one, "customer": data} for one in FAILED]
    words = " ".join(f"{one.path} {one.says}" for one in commonalities(shared, DELIVERED).found)
    assert str(data) not in words


def test_a_plain_word_that_one_message_alone_has_is_not_named() -> None:
    assert said([{"name": "Smith"}, {"name": "Jones"}], [{"name": "Miller"}] * 5) == []


def test_nested_fields_have_their_path() -> None:
    failed = [{"customer": {"address": {"zip": ""}}}] * 5
    delivered = [{"customer": {"address": {"zip": "10115"}}}] * 5
    assert said(failed, delivered) == [("customer.address.zip", '= ""', 1.0)]


@pytest.mark.parametrize("odd", [[], [1, 2], "text", None, {}])
def test_payloads_that_are_no_objects_tell_nothing(odd: Any) -> None:
    assert said([odd] * 5, [odd] * 5) == []
