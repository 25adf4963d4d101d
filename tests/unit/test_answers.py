"""The five answers as values: they survive being kept, and their codes always fit the archive."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.answers import (
    Absent,
    Advance,
    Answer,
    CannotTell,
    Delivered,
    Found,
    LookupAnswer,
    Retryable,
    Terminal,
    Unknown,
    clean_code,
    from_json,
    label,
    to_json,
)

CODE = re.compile(r"[A-Z][A-Z0-9_]{0,63}")
texts = st.text(st.characters(codec="utf-8"), max_size=30)
finite = st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | finite | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
any_answer: st.SearchStrategy[Answer] = st.one_of(
    st.builds(Delivered, reference=st.none() | texts, result=json_values),
    st.builds(Advance, stage=texts, result=json_values, destination=st.none() | texts),
    st.builds(
        Retryable, code=texts, text=texts, retry_after=st.none() | finite | texts, destination_down=st.booleans()
    ),
    st.builds(Terminal, code=texts, text=texts, bug=st.booleans()),
    st.builds(Unknown, code=texts, text=texts, bug=st.booleans(), wait_seconds=st.none() | finite),
)


@pytest.mark.req("G-27")
@given(any_answer)
def test_kept_answer_comes_back_as_it_was(answer: Answer) -> None:
    stored = json.loads(json.dumps(to_json(answer), allow_nan=False))
    back = from_json(stored)
    assert type(back) is type(answer)
    assert {f.name: getattr(back, f.name) for f in fields(back)} == {
        f.name: getattr(answer, f.name) for f in fields(answer)
    }


def test_kept_answer_with_an_unknown_name_is_refused() -> None:
    with pytest.raises(KeyError, match="perhaps"):
        from_json({"answer": "perhaps"})


@pytest.mark.parametrize(
    ("answer", "word"),
    [
        (Delivered(), "delivered"),
        (Advance("next"), "advance"),
        (Retryable("A"), "retryable"),
        (Terminal("A"), "terminal"),
        (Unknown("A"), "unknown"),
    ],
)
def test_answer_has_its_word_in_the_archive(answer: Answer, word: str) -> None:
    assert label(answer) == word
    assert to_json(answer)["answer"] == word


@pytest.mark.parametrize("answer", [Delivered(), Retryable("A"), Terminal("A"), Unknown("A"), Advance("next")])
def test_answer_may_be_raised(answer: Answer) -> None:
    with pytest.raises(type(answer)) as raised:
        raise answer
    assert raised.value is answer


@pytest.mark.parametrize("answer", [Found("ref"), Absent(), CannotTell()])
def test_answer_of_a_lookup_is_no_answer_of_a_send(answer: LookupAnswer) -> None:
    assert not isinstance(answer, Answer)


@pytest.mark.req("G-10")
@given(st.text() | st.integers() | st.floats() | st.binary() | st.none() | st.lists(st.text()))
def test_any_code_is_made_to_fit(code: Any) -> None:
    clean = clean_code(code)
    assert CODE.fullmatch(clean)
    assert clean_code(clean) == clean


@pytest.mark.req("G-10")
@given(st.from_regex(CODE, fullmatch=True))
def test_proper_code_stays_as_it_is(code: str) -> None:
    assert clean_code(code) == code


@pytest.mark.req("G-10")
@pytest.mark.parametrize(
    ("code", "clean"),
    [
        ("HTTP_503", "HTTP_503"),
        ("http 503", "HTTP_503"),
        (503, "CODE_503"),
        ("503", "CODE_503"),
        ("", "CODE"),
        ("___", "CODE"),
        ("a" * 65, "A" * 64),
        ("A\n", "A"),
        ("straße", "STRASSE"),
        ("\x00", "CODE"),
        ("\ud800", "CODE"),
    ],
)
def test_code_is_folded_in_a_way_that_can_be_foreseen(code: object, clean: str) -> None:
    assert clean_code(code) == clean
