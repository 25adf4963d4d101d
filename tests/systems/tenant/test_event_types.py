"""Keys of events: the same parts give the same key everywhere, other parts another, a missing part is refused."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from itertools import combinations
from typing import Any

import pytest

import redrive
from redrive.errors import InvalidValue
from redrive.systems import tenant
from tests.systems.tenant.conftest import TYPES

pytestmark = [pytest.mark.req("T-01"), pytest.mark.req("T-10")]
AT = datetime(2026, 11, 18, 12, 0, 30, tzinfo=UTC)
V1 = {"entity": "d-1", "version": 1}


@pytest.mark.seed("003", "DeterministicKey_SameInput_SameGuid")
@pytest.mark.seed("003", "DeterministicKey_SameInputs_SameGuid")
def test_the_same_input_gives_the_same_key_in_every_process() -> None:
    program = (
        "from redrive.systems import tenant; t = tenant.EventTypes();"
        "t.declare('DefinitionPublished', category='definition', by=tenant.Version());"
        "print(t.key('acme', 'DefinitionPublished', {'entity': 'd-1', 'version': 1}))"
    )
    elsewhere = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert elsewhere.stdout.strip() == str(TYPES.key("acme", "DefinitionPublished", V1))
    assert TYPES.key("ACME", "DefinitionPublished", V1) == TYPES.key("acme", "DefinitionPublished", V1)


@pytest.mark.seed("003", "DeterministicKey_DifferentInput_DifferentGuid")
@pytest.mark.seed("003", "DeterministicKey_DifferentInputs_DifferentGuid")
def test_different_inputs_give_different_keys() -> None:
    keys = [
        TYPES.key("acme", "DefinitionPublished", V1),
        TYPES.key("other", "DefinitionPublished", V1),
        TYPES.key("acme", "DefinitionPublished", {"entity": "d-2", "version": 1}),
        TYPES.key("acme", "DefinitionPublished", {"entity": "D-1", "version": 1}),
        TYPES.key("acme", "DefinitionPublished", {"entity": "d-1", "version": 2}),
        TYPES.key("acme", "DefinitionPublished", {"entity": "d-1:1", "version": "0"}),
        TYPES.key("acme", "TaskClaimed", {"entity": "d-1", "correlation": "1"}),
        TYPES.key("acme", "InstanceCreated", {"entity": "d-1"}),
    ]
    assert all(one != other for one, other in combinations(keys, 2))


def test_events_of_one_span_of_time_are_one_and_those_of_the_next_another() -> None:
    def at(moment: datetime) -> Any:
        return TYPES.key("acme", "InstanceTicked", {"entity": "i-1", "at": moment})

    assert at(AT) == at(AT + timedelta(seconds=29)) == at(AT.astimezone())
    assert at(AT) != at(AT + timedelta(seconds=30))
    assert at(AT) != at(AT - timedelta(seconds=31))


def test_the_documents_own_formula_is_one_of_the_algorithms() -> None:
    types = tenant.EventTypes(algorithm="seed003")
    types.declare("Published", category="Definition", by=tenant.Version())
    expected = redrive.key(
        tenant="acme", category="Definition", entity="d", kind="Published", version=3, algorithm="seed003"
    )
    assert str(types.key("acme", "Published", {"entity": "d", "version": 3})) == expected


@pytest.mark.req("G-19")
@pytest.mark.parametrize(
    ("event_type", "parts", "said"),
    [
        ("DefinitionPublished", {"entity": "d"}, "made of entity and version, and version is missing"),
        ("DefinitionPublished", {"version": 1}, "and entity is missing"),
        ("InstanceCreated", {}, "made of entity, and entity is missing"),
        ("DefinitionPublished", {**V1, "at": AT}, "it has no part 'at'"),
        ("DefinitionPublished", {"entity": "d", "version": 1.5}, "version is of type float"),
        ("DefinitionPublished", {"entity": "d", "version": True}, "version is of type bool"),
        ("InstanceTicked", {"entity": "i", "at": datetime(2026, 1, 1)}, "must be a datetime with a time zone"),  # noqa: DTZ001
        ("TaskClaimed", {"entity": "t", "correlation": 7}, "correlation is of type int"),
        ("TaskClaimed", {"entity": "t", "correlation": ""}, "correlation is empty"),
        ("DefinitionPublished", {"entity": "d", "version": ""}, "version is empty"),
        ("DefinitionPublished", {"entity": "", "version": 1}, "entity is empty"),
        ("DefinitionPublished", [("entity", "d")], "parts is of type list"),
        ("DefinitionPublishd", V1, "did you mean 'DefinitionPublished'?"),
        ("Unheard", V1, "known are: DefinitionPublished, InstanceCreated"),
    ],
)
def test_a_part_that_is_missing_or_of_another_kind_is_refused_by_name(
    event_type: str, parts: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidValue) as refused:
        TYPES.key("acme", event_type, parts)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("declare", "said"),
    [
        (lambda types: types.declare("", category="c"), "1 to 100 characters"),
        (lambda types: types.declare("x" * 101, category="c"), "1 to 100 characters"),
        (lambda types: types.declare("A", category=""), "needs a category"),
        (lambda types: (types.declare("A", category="c"), types.declare("A", category="c")), "declared twice"),
        (lambda types: types.declare("A", category="c", by="version"), "must be a recipe"),
        (lambda types: types.declare("A", category="c", by=tenant.Version), "must be a recipe"),
        (lambda types: types.declare("A", category="c", by=tenant.Version(), keyed=False), "leave one of them out"),
        (lambda _: tenant.EventTypes(algorithm="md5"), "algorithm is 'md5'; it must be one of sha256, uuid5, seed003"),  # type: ignore[arg-type]
        (lambda _: tenant.TimestampBucket(0), "from 1 to 86400"),
        (lambda _: tenant.TimestampBucket(86_401), "from 1 to 86400"),
    ],
)
def test_a_wrong_declaration_is_refused(declare: Any, said: str) -> None:
    with pytest.raises(InvalidValue, match=said):
        declare(tenant.EventTypes())


def test_the_neighbours_of_what_is_refused_are_accepted() -> None:
    types = tenant.EventTypes()
    types.declare("x" * 100, category="c", by=tenant.TimestampBucket(86_400))
    types.declare("y", category="c", by=tenant.TimestampBucket(1))
    assert types.key("acme", "y", {"entity": 0, "at": AT}) != types.key("acme", "y", {"entity": "o", "at": AT})
    assert TYPES.key("acme", "TaskClaimed", {"entity": "t", "correlation": "0"}).version is None
    assert TYPES.key("acme", "DefinitionPublished", {"entity": "d", "version": 0}).version is None
    assert [one.name for one in types] == ["x" * 100, "y"]
    assert "y" in types
