"""What a payload may be, and that one value has one text. No database."""

from __future__ import annotations

import enum
import json
import sys
from collections import OrderedDict
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from redrive.errors import InvalidPayload
from redrive.produce.payload import BYTES_MAX, DEPTH_MAX, DIGITS_MAX, canonical_json, encode

pytestmark = pytest.mark.req("G-19")

CHARACTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
TEXTS = st.text(CHARACTERS)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4), max_leaves=12
)
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # on a machine that is busy


class Colour(enum.StrEnum):
    RED = "red"


class Size(enum.IntEnum):
    BIG = 3


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@UNHURRIED
@given(VALUES)
def test_json_comes_back_as_it_went_in(value: Any) -> None:
    assert json.loads(canonical_json(value)) == value


@pytest.mark.req("G-26")
@UNHURRIED
@given(st.dictionaries(TEXTS, VALUES, max_size=4))
def test_the_order_of_keys_does_not_matter(value: dict[str, Any]) -> None:
    assert canonical_json(dict(reversed(value.items()))) == canonical_json(value)


@pytest.mark.req("G-26")
def test_the_text_is_compact_sorted_and_not_escaped() -> None:
    assert canonical_json({"b": [1, 2.5, None], "a": "ü\n"}) == '{"a":"ü\\n","b":[1,2.5,null]}'.encode()


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (None, "null"),
        (True, "true"),
        (0, "0"),
        ("", '""'),
        ([], "[]"),
        ((1, 2), "[1,2]"),
        (OrderedDict(b=1, a=2), '{"a":2,"b":1}'),
        ({"c": Colour.RED, Colour.RED: Size.BIG}, '{"c":"red","red":3}'),
        ("\\u0000", '"\\\\u0000"'),
        (-0.0, "-0.0"),
        ("\U0010ffff\ue000", '"\U0010ffff\ue000"'),
        ("9" * (DIGITS_MAX + 1), f'"{"9" * (DIGITS_MAX + 1)}"'),
    ],
)
def test_unusual_json_is_accepted(payload: Any, text: str) -> None:
    assert encode(payload) == (text.encode(), "application/json")


@pytest.mark.parametrize("given_as", [bytes, bytearray, memoryview])
def test_bytes_are_kept_as_they_are(given_as: Any) -> None:
    raw = bytes(range(256))
    assert encode(given_as(raw)) == (raw, "application/octet-stream")


@pytest.mark.parametrize(
    ("payload", "place"),
    [
        ({1, 2}, "payload is a set"),
        (datetime(2030, 1, 1, tzinfo=UTC), "payload is a datetime"),
        ({"items": [0, 0, 0, {"at": datetime(2030, 1, 1, tzinfo=UTC)}]}, "payload.items[3].at is a datetime"),
        ({"on": date(2030, 1, 1)}, "payload.on is a date"),
        ({"sum": Decimal("1.10")}, "payload.sum is a Decimal"),
        ([object()], "payload[0] is an object"),
        ((UUID(int=1),), "payload[0] is a UUID"),
        ({"file": Path("x")}, "payload.file is a PosixPath"),
        ({"raw": b"x"}, "payload.raw is a bytes"),
        ({1: "a"}, "payload has a key that is an int"),
        ({"a": {None: 1}}, "payload.a has a key that is a NoneType"),
        ({("a",): 1}, "payload has a key that is a tuple"),
        (float("nan"), "payload is nan"),
        ({"a": [float("inf")]}, "payload.a[0] is inf"),
        ([-float("inf")], "payload[0] is -inf"),
        ("a\0b", "payload has a NUL character"),
        ({"a": ["\0"]}, "payload.a[0] has a NUL character"),
        ({"\0": 1}, "a key of payload has a NUL character"),
        ("\ud800", "payload has a lone surrogate"),
        ({"a": "\udfff"}, "payload.a has a lone surrogate"),
        ({"\udc80": 1}, "a key of payload has a lone surrogate"),
        ({"4111 1111 1111 1111": {"cvc": {1}}}, "payload[…].cvc is a set"),
    ],
)
def test_what_json_does_not_have_is_refused_with_its_place(payload: Any, place: str) -> None:
    with pytest.raises(InvalidPayload) as refused:
        encode(payload)
    assert str(refused.value).startswith(place)


def test_a_refusal_never_shows_the_data() -> None:
    with pytest.raises(InvalidPayload) as refused:
        encode({"card": "4111\0", "note": {"secret"}})
    assert "4111" not in str(refused.value)
    assert "secret" not in str(refused.value)


def test_depth_is_bounded() -> None:
    assert encode(nested(DEPTH_MAX))[0] == b"[" * DEPTH_MAX + b"1" + b"]" * DEPTH_MAX
    with pytest.raises(InvalidPayload, match=f"more than {DEPTH_MAX} levels"):
        encode(nested(DEPTH_MAX + 1))
    with pytest.raises(InvalidPayload, match=f"more than {DEPTH_MAX} levels"):
        encode(nested(100_000))


def test_what_contains_itself_is_refused() -> None:
    loop: dict[str, Any] = {}
    loop["again"] = [loop]
    with pytest.raises(InvalidPayload, match="contains itself"):
        encode(loop)


def test_what_is_small_in_memory_but_endless_as_text_is_refused_at_once() -> None:
    value: Any = []
    for _ in range(DEPTH_MAX - 1):
        value = [value, value]
    with pytest.raises(InvalidPayload, match="too large"):
        encode(value)


@pytest.mark.parametrize("make", [lambda n: b"x" * n, lambda n: "x" * (n - 2), lambda n: ["ü" * ((n - 4) // 2)]])
def test_size_is_bounded_in_bytes_as_they_are_stored(make: Any) -> None:
    assert len(encode(make(BYTES_MAX))[0]) == BYTES_MAX
    with pytest.raises(InvalidPayload, match=r"too large: .* at most 262,144"):
        encode(make(BYTES_MAX + 2))


def test_many_small_parts_are_bounded_by_the_size_too() -> None:
    assert len(encode([0] * ((BYTES_MAX - 2) // 2))[0]) == BYTES_MAX - 1
    with pytest.raises(InvalidPayload, match="too large"):
        encode([0] * (BYTES_MAX // 2 + 1))


@pytest.mark.parametrize("sign", [1, -1])
def test_the_digits_of_an_integer_are_bounded(sign: int) -> None:
    assert len(encode(sign * (10**DIGITS_MAX - 1))[0]) == DIGITS_MAX + (sign < 0)
    with pytest.raises(InvalidPayload, match=r"payload\[0\] is an integer of more than 4,300 digits"):
        encode([sign * 10**DIGITS_MAX])


def test_the_digits_are_bounded_where_python_does_not_bound_them() -> None:
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        with pytest.raises(InvalidPayload, match="more than 4,300 digits"):
            encode({"n": 10**DIGITS_MAX})
    finally:
        sys.set_int_max_str_digits(before)


def test_a_number_that_this_interpreter_will_not_write_is_refused() -> None:
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(640)
    try:
        with pytest.raises(InvalidPayload, match="cannot be written as JSON"):
            encode(10**1000)
    finally:
        sys.set_int_max_str_digits(before)
