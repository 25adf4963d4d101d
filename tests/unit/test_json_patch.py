"""JSON Patch by the examples of RFC 6902, appendix A, and what a hostile patch could do."""

from __future__ import annotations

from typing import Any

import pytest

from redrive.errors import InvalidValue
from redrive.operate.desk import json_patch

pytestmark = pytest.mark.req("G-16")

Json = Any
FITTING: list[tuple[Json, list[dict[str, Json]], Json]] = [
    ({"foo": "bar"}, [{"op": "add", "path": "/baz", "value": "qux"}], {"foo": "bar", "baz": "qux"}),
    ({"foo": ["bar", "baz"]}, [{"op": "add", "path": "/foo/1", "value": "qux"}], {"foo": ["bar", "qux", "baz"]}),
    ({"baz": 1, "foo": "bar"}, [{"op": "remove", "path": "/baz"}], {"foo": "bar"}),
    ({"foo": ["bar", "qux", "baz"]}, [{"op": "remove", "path": "/foo/1"}], {"foo": ["bar", "baz"]}),
    ({"baz": 1, "foo": 2}, [{"op": "replace", "path": "/baz", "value": 3}], {"baz": 3, "foo": 2}),
    ({"a": [1, 2, 3]}, [{"op": "replace", "path": "/a/1", "value": 9}], {"a": [1, 9, 3]}),
    (
        {"foo": {"bar": "baz", "waldo": "fred"}, "qux": {"corge": "grault"}},
        [{"op": "move", "from": "/foo/waldo", "path": "/qux/thud"}],
        {"foo": {"bar": "baz"}, "qux": {"corge": "grault", "thud": "fred"}},
    ),
    ({"foo": [1, 2, 3, 4]}, [{"op": "move", "from": "/foo/1", "path": "/foo/3"}], {"foo": [1, 3, 4, 2]}),
    ({"a": 1}, [{"op": "test", "path": "/a", "value": 1.0}], {"a": 1}),
    (
        {"foo": "bar"},
        [{"op": "add", "path": "/child", "value": {"grandchild": {}}}],
        {"foo": "bar", "child": {"grandchild": {}}},
    ),
    ({"foo": ["bar"]}, [{"op": "add", "path": "/foo/-", "value": ["abc"]}], {"foo": ["bar", ["abc"]]}),
    ({"/": 9, "~1": 10}, [{"op": "test", "path": "/~01", "value": 10}], {"/": 9, "~1": 10}),
    ({"a": 1}, [{"op": "copy", "from": "/a", "path": "/b"}], {"a": 1, "b": 1}),
    ({"a": 1}, [{"op": "replace", "path": "", "value": [1]}], [1]),
    ({"": 1}, [{"op": "remove", "path": "/"}], {}),
    ({"a": 1}, [{"op": "move", "from": "/a", "path": "/a"}], {"a": 1}),
    ({"a": 1}, [{"op": "add", "path": "/b", "value": 1, "xyz": 123}], {"a": 1, "b": 1}),
]
REFUSED: list[tuple[Json, Json]] = [
    ({"foo": "bar"}, [{"op": "add", "path": "/baz/bat", "value": 1}]),
    ({"baz": "qux"}, [{"op": "test", "path": "/baz", "value": "bar"}]),
    ({"a": 1}, [{"op": "test", "path": "/a", "value": True}]),
    ({"a": 1}, [{"op": "remove", "path": "/b"}]),
    ({"a": [1]}, [{"op": "add", "path": "/a/2", "value": 1}]),
    ({"a": [1]}, [{"op": "remove", "path": "/a/-"}]),
    ({"a": [1]}, [{"op": "replace", "path": "/a/01", "value": 1}]),
    ({"a": [1]}, [{"op": "replace", "path": "/a/-1", "value": 1}]),
    ({"a": {"b": 1}}, [{"op": "move", "from": "/a", "path": "/a/b"}]),
    ({"a": 1}, [{"op": "replace", "path": "/b", "value": 1}]),
    ({"a": 1}, [{"op": "add", "path": "b", "value": 1}]),
    ({"a": 1}, [{"op": "add", "path": "/~2", "value": 1}]),
    ({"a": 1}, [{"op": "add", "path": "/b"}]),
    ({"a": 1}, [{"op": "spam", "path": "/b"}]),
    ({"a": 1}, [{"path": "/b"}]),
    ({"a": 1}, {"op": "remove", "path": "/a"}),
    ({"a": 1}, []),
    ({"a": 1}, ["remove"]),
]


@pytest.mark.parametrize(("document", "patch", "expected"), FITTING)
def test_a_patch_that_fits_gives_the_document_of_the_rfc(document: Json, patch: Json, expected: Json) -> None:
    assert json_patch.apply(document, patch) == expected


@pytest.mark.parametrize(("document", "patch"), REFUSED)
def test_a_patch_that_does_not_fit_is_refused(document: Json, patch: Json) -> None:
    with pytest.raises(InvalidValue):
        json_patch.apply(document, patch)


def test_a_refused_patch_leaves_the_document_as_it_was() -> None:
    document = {"a": [1], "b": {"c": 2}}
    patch = [
        {"op": "remove", "path": "/a/0"},
        {"op": "add", "path": "/b/d", "value": 1},
        {"op": "remove", "path": "/x"},
    ]
    with pytest.raises(InvalidValue, match=r"Operation 2 .*'/x'"):
        json_patch.apply(document, patch)
    assert document == {"a": [1], "b": {"c": 2}}


def test_no_message_has_data() -> None:
    with pytest.raises(InvalidValue) as refused:
        json_patch.apply({"card": "4111"}, [{"op": "test", "path": "/card", "value": "4222"}])
    assert "4111" not in str(refused.value)
    assert "4222" not in str(refused.value)


def test_what_a_patch_does_is_told_without_values() -> None:
    assert json_patch.paths([{"op": "add", "path": "/a", "value": "secret"}]) == ["add /a"]


def test_copies_that_double_the_document_are_refused_before_they_fill_the_memory() -> None:
    doubling = [{"op": "copy", "from": "", "path": f"/b{number}"} for number in range(200)]
    with pytest.raises(InvalidValue, match=r"Operation \d of the patch: the patch copies more than 262,144 bytes"):
        json_patch.apply({"a": "x" * 1000}, doubling)


def test_a_copy_as_large_as_a_payload_may_be_is_made() -> None:
    text = "x" * 262_142  # and its quotes
    assert json_patch.apply({"a": text}, [{"op": "copy", "from": "/a", "path": "/b"}])["b"] == text
    with pytest.raises(InvalidValue):
        json_patch.apply({"a": text + "x"}, [{"op": "copy", "from": "/a", "path": "/b"}])
