"""Deterministic keys: fixed vectors, and different parts give different keys (G-04, ruling 8).

The vectors were computed with `openssl dgst` from the text in the docstring of `redrive.produce.keys`.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from typing import Any
from uuid import UUID

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import redrive
from redrive.errors import InvalidValue

pytestmark = pytest.mark.req("G-04")

PARTS = st.text(st.sampled_from("aA:,-0|é"), min_size=1, max_size=4)
MAYBE_EMPTY = st.text(st.sampled_from("aA:,-0|é"), max_size=4)
INPUTS = st.fixed_dictionaries(
    {
        "tenant": PARTS,
        "category": PARTS,
        "entity": PARTS,
        "kind": MAYBE_EMPTY,
        "version": st.none() | MAYBE_EMPTY,
    }
)


def folded(parts: dict[str, Any]) -> dict[str, Any]:
    """What counts: ASCII letters of three parts in lower case."""
    lower = {name: parts[name].replace("A", "a") for name in ("tenant", "category", "kind")}
    return {**parts, **lower}


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (
            {"category": "order", "entity": "42", "kind": "created", "version": 3},
            "b0f403ed-c5ea-7005-42f1-a057a5c73ccc",
        ),
        ({"tenant": "Acme", "category": "INVOICE", "entity": "INV-7a"}, "4bea207a-b840-da1b-134d-2c2598dae575"),
        ({"category": "kunde", "entity": "Müller", "kind": "neu"}, "e8fbff16-6ec2-fe13-8884-fb8b681cdbe7"),
        (
            {"category": "order", "entity": "42", "kind": "created", "version": "3", "algorithm": "uuid5"},
            "271144c0-7b3b-58f8-933c-8229d90303bb",
        ),
        (
            {"tenant": "Acme", "category": "Invoice", "entity": "INV-7a", "kind": "Sent", "algorithm": "seed003"},
            "d15b7ebb-04e1-b485-5579-9c7397d57a84",
        ),
        (
            {
                "tenant": "acme",
                "category": "invoice",
                "entity": "inv-7a",
                "kind": "sent",
                "version": 12,
                "algorithm": "seed003",
            },
            "43d678ba-d35b-a433-719c-393adf4e952e",
        ),
    ],
)
def test_the_key_of_known_parts_is_the_known_one(parts: Any, expected: str) -> None:
    assert redrive.key(**parts) == expected


@pytest.mark.parametrize("algorithm", ["sha256", "uuid5"])
@settings(deadline=None)
@given(first=INPUTS, second=INPUTS)
@example(
    first={"tenant": "a:b", "category": "c", "entity": "e", "kind": "k", "version": None},
    second={"tenant": "a", "category": "b:c", "entity": "e", "kind": "k", "version": None},
)
@example(
    first={"tenant": "t", "category": "c", "entity": "e", "kind": "", "version": ""},
    second={"tenant": "t", "category": "c", "entity": "e", "kind": "", "version": None},
)
@example(
    first={"tenant": "t", "category": "c", "entity": "E", "kind": "k", "version": None},
    second={"tenant": "T", "category": "C", "entity": "e", "kind": "K", "version": None},
)
def test_keys_are_equal_exactly_where_the_folded_parts_are(algorithm: Any, first: Any, second: Any) -> None:
    same_parts = folded(first) == folded(second)
    same_key = redrive.key(**first, algorithm=algorithm) == redrive.key(**second, algorithm=algorithm)
    assert same_key == same_parts


@pytest.mark.parametrize("algorithm", ["sha256", "uuid5"])
def test_a_delimiter_inside_a_part_moves_nothing_into_its_neighbour(algorithm: Any) -> None:
    texts = ["a", "b", "a:b", "b:a", "1:a,", "1:a,1:b", "-,", "a,1:b"]
    triples = list(itertools.product(texts, repeat=3))
    keys = {redrive.key(tenant=t, category=c, entity=e, algorithm=algorithm) for t, c, e in triples}
    assert len(keys) == len(triples)


def test_the_text_of_an_entity_or_version_counts() -> None:
    assert redrive.key(category="c", entity=7, version=1) == redrive.key(category="c", entity="7", version="1")
    by_id = redrive.key(category="c", entity=UUID(int=7))
    assert by_id == redrive.key(category="c", entity=str(UUID(int=7)))


def test_the_seeds_formula_lowers_one_character_for_one() -> None:
    def with_entity(entity: str) -> str:
        return redrive.key(category="c", entity=entity, algorithm="seed003")

    assert with_entity("ΟΔΟΣ") == with_entity("οδοσ")  # no final sigma
    assert with_entity("İ") != with_entity("i̇")  # two characters would be another text


def test_the_key_is_the_same_in_every_process() -> None:
    code = "import redrive; print(redrive.key(tenant='Ä', category='b', entity='c', version=1))"
    answers = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed, "LC_ALL": locale, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed, locale in [("1", "C"), ("2", "C.UTF-8")]
    }
    assert answers == {redrive.key(tenant="Ä", category="b", entity="c", version=1) + "\n"}


def test_a_key_is_accepted_by_enqueue_as_it_is() -> None:
    key = redrive.key(category="order", entity=1)
    assert str(UUID(key)) == key


@pytest.mark.req("G-19")
@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ({"category": "", "entity": "1"}, "category is empty"),
        ({"category": "c", "entity": ""}, "entity is empty"),
        ({"category": "c", "entity": "1", "tenant": ""}, "tenant is empty"),
        ({"category": "c", "entity": None}, "entity is of type NoneType"),
        ({"category": "c", "entity": True}, "entity is of type bool"),
        ({"category": "c", "entity": 1.5}, "entity is of type float"),
        ({"category": "c", "entity": "x" * 1001}, "entity has 1,001 characters"),
        ({"category": "c", "entity": "\ud800"}, "lone surrogate"),
        ({"category": "c", "entity": "1", "version": b"1"}, "version is of type bytes"),
        ({"category": "c", "entity": "1", "algorithm": "md5"}, "algorithm is 'md5'"),
    ],
)
def test_bad_parts_are_refused(parts: Any, why: str) -> None:
    with pytest.raises(InvalidValue, match=why):
        redrive.key(**parts)
