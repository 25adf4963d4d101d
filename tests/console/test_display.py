"""The one place through which data reaches a page: digits stay, values are hidden, a diff shows what changed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redrive.operate.console import display, files
from redrive.operate.console.charts import nice_top, short
from redrive.operate.console.rendering import percent
from redrive.operate.desk.commonalities import MISSING
from redrive.store.reads.dashboard import Sample
from tests.support import messages as m

pytestmark = pytest.mark.req("G-21")
JSON = "application/json"
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)


def text_of(shown: display.Shown) -> str:
    return "\n".join("".join(piece.text for piece in line) for line in shown.lines)


@settings(max_examples=50)
@given(VALUES)
def test_what_is_made_readable_is_the_same_value(value: Any) -> None:
    assert json.loads(display.pretty(json.dumps(value))) == value


@pytest.mark.parametrize(
    "digits", ["12345678901234567890", "1.10", "0.1000", "1E400", "-0", "1e5", "3.141592653589793238"]
)
def test_a_number_keeps_its_digits(digits: str) -> None:
    assert digits in display.pretty(f'{{"n":{digits}}}')
    assert digits in text_of(display.payload(f'{{"n":{digits}}}'.encode(), JSON, reveal=True))


def test_values_are_hidden_and_structure_is_not() -> None:
    body = b'{"name":"Ada Lovelace","born":1815,"paid":true,"left":null,"lines":[{"sku":"teapot"}],"none":""}'
    shown = text_of(display.payload(body, JSON, reveal=False))
    assert not [word for word in ("Ada", "1815", "teapot") if word in shown]
    assert [word for word in ("name", "born", "true", "null", "lines", "sku") if word not in shown] == []


@pytest.mark.parametrize(
    "name", ["password", "api_key", "Authorization", "access-token", "client_secret", "x-signature", "cvc"]
)
def test_what_looks_like_a_secret_is_never_revealed(name: str) -> None:
    body = json.dumps({name: "s3cret", "nested": {name: ["s3cret"]}}).encode()
    assert "s3cret" not in text_of(display.payload(body, JSON, reveal=True))
    assert "s3cret" not in str(display.headers({name: "s3cret"}, reveal=True))


@pytest.mark.parametrize(
    ("body", "content_type", "note"),
    [(b"\x00\xff", "application/octet-stream", "only JSON"), (b"{", JSON, "is not"), (b"\xff", JSON, "is not")],
)
def test_what_is_no_json_is_said_to_be_none(body: bytes, content_type: str, note: str) -> None:
    shown = display.payload(body, content_type, reveal=True)
    assert (shown.lines, note in shown.note) == ([], True)


def test_a_payload_of_a_hundred_thousand_lines_is_cut_and_says_so() -> None:
    shown = display.payload(json.dumps(list(range(100_000))).encode(), JSON, reveal=True)
    assert len(shown.lines) == display.LINES_MAX
    assert "first" in shown.note


def test_only_the_part_that_changed_is_marked() -> None:
    rows = display.side_by_side('{\n  "currency": null,\n  "a": 1\n}', '{\n  "currency": "EUR",\n  "a": 1\n}')
    (changed,) = [row for row in rows if row and row.kind == "changed"]
    assert changed.left == ('  "currency": ', "null", ",")
    assert changed.right == ('  "currency": ', '"EUR"', ",")


@settings(max_examples=50)
@given(st.text("ab\n", max_size=30), st.text("ab\n", max_size=30))
def test_both_sides_of_a_diff_are_whole(before: str, after: str) -> None:
    rows = [row for row in display.side_by_side(before, after) if row]
    left = ["".join(row.left) for row in rows if row.left is not None]
    right = ["".join(row.right) for row in rows if row.right is not None]
    assert set(left) <= set(before.splitlines())
    assert set(right) <= set(after.splitlines())
    assert not rows or (before.splitlines() != after.splitlines())


@pytest.mark.parametrize("hostile", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "=cmd|' /C calc'!A0"])
def test_a_cell_is_no_formula(hostile: str) -> None:
    assert display.cell(hostile)[0] == "'"


def test_a_cell_is_one_line_and_a_plain_one_is_itself() -> None:
    assert display.cell("a\nb\u202ec") == "a�b�c"
    assert (display.cell("plain"), display.cell(None), display.cell(7)) == ("plain", "", "7")


@pytest.mark.parametrize(
    ("share", "words"), [(1.0, "100 %"), (0.9999, "99 %"), (0.97, "97 %"), (0.0, "0 %"), (0.001, "under 1 %")]
)
def test_all_is_only_said_of_all(share: float, words: str) -> None:
    assert percent(share) == words


@pytest.mark.parametrize(("most", "top"), [(0, 1), (1, 1), (3, 5), (7, 10), (11, 20), (540, 1000), (1001, 2000)])
def test_an_axis_ends_at_a_round_number(most: int, top: int) -> None:
    assert nice_top(most) == top
    assert short(1500) == "1.5k"


def test_every_file_has_its_hash_in_its_name_and_its_licence_beside_it() -> None:
    linked = files.by_linked_name()
    assert all(asset.name.split(".")[-2].isalnum() for asset in linked.values())
    assert {"htmx.min.js", "htmx.LICENSE.txt", "console.css", "console.js", "theme.js"} <= set(files.assets())
    assert b"http" not in files.assets()["console.css"].body, "nothing is loaded from elsewhere"


def test_a_change_is_looked_at_before_it_is_saved() -> None:
    from redrive.operate.console.pages.editing import look

    body = b'{"amount":"1.00","currency":null}'
    others = [Sample(m.SOME_ID, f'{{"amount":"{n}.00","currency":null}}'.encode()) for n in range(5)]
    good = look(body, '{"amount":"1.00","currency":"EUR"}', others)
    assert (good.changed, good.fits, good.sampled) == (True, 5, 5)
    assert [(one.path, one.same, one.overwrites) for one in good.effects] == [("/currency", 5, 0)]
    equal = look(body, '{"amount":"2.00","currency":null}', others)
    assert [(one.path, one.overwrites) for one in equal.effects] == [("/amount", 5)], "all amounts would be the same"
    assert look(body, body.decode(), others).changed is False


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"a":', "not JSON"),
        ('{"a":1.00000000000000000001}', "round"),
        ('{"a":NaN}', ""),
        ("[" * 100_000, "nested"),
    ],
    ids=["cut", "digits", "no number", "deep"],
)
def test_what_cannot_be_saved_is_said_at_once(text: str, problem: str) -> None:
    from redrive.operate.console.pages.editing import look

    looked = look(b'{"a":1}', text, [])
    assert looked.problem
    assert problem in looked.problem
    assert not looked.changed


def test_missing_is_said_as_the_page_says_it() -> None:
    assert MISSING == "is missing"
