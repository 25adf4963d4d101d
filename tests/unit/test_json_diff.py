"""What a person changed by hand, as a JSON Patch: it leads there, and it fits others of the same shape."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.operate.desk import json_patch
from redrive.operate.desk.json_patch import difference

pytestmark = pytest.mark.req("G-16")

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text("ab~/0", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab~/01", max_size=2), inner, max_size=3),
    max_leaves=12,
)


@given(VALUES, VALUES)
def test_carried_out_the_difference_leads_to_the_other_value(before: Any, after: Any) -> None:
    patch = difference(before, after)
    assert json_patch.same(json_patch.apply(before, patch), after) if patch else json_patch.same(before, after)


def test_a_value_without_a_change_has_no_difference() -> None:
    assert difference({"a": [1, {"b": None}]}, {"a": [1, {"b": None}]}) == []


def test_a_member_that_was_set_is_also_set_where_it_is_missing() -> None:
    patch = difference({"currency": None, "amount": 1}, {"currency": "EUR", "amount": 1})
    assert patch == [{"op": "add", "path": "/currency", "value": "EUR"}]
    assert json_patch.apply({"amount": 2}, patch) == {"amount": 2, "currency": "EUR"}


def test_a_place_in_a_list_is_replaced_and_not_pushed_on() -> None:
    patch = difference({"lines": [1, 2]}, {"lines": [1, 3]})
    assert patch == [{"op": "replace", "path": "/lines/1", "value": 3}]


def test_a_truth_value_is_not_a_number() -> None:
    assert difference({"a": 1}, {"a": True}) == [{"op": "add", "path": "/a", "value": True}]
