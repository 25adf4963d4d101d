"""Arrays on their way to PostgreSQL: what is written is what is read (store/runtime/wire.py)."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import IntEnum, StrEnum
from typing import Any
from uuid import UUID

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redrive.store.runtime import wire

storable = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=20)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("text", ["", "NULL", "null", '"', "\\", '\\"', "{a,b}", " a ", "ä€\U0001f600", "a\nb\tc", None]),
        ("uuid", [UUID(int=1), UUID(int=2**128 - 1), None]),
        ("integer", [0, -1, 2**31 - 1, None]),
        ("smallint", [0, 1, 2]),
        ("float8", [0.0, 0.1, 1e300, -2.5e-9]),
        ("boolean", [True, False, None]),
        ("timestamptz", [datetime(2026, 1, 2, 3, 4, 5, 678901, UTC), None]),
    ],
)
def test_an_array_arrives_as_it_was_written(server_dsn: str, kind: str, values: list[Any]) -> None:
    query = f"SELECT %s::{kind}[]"
    with psycopg.connect(server_dsn, options="-c timezone=UTC") as conn:
        assert conn.execute(query.encode(), [wire.array(values)]).fetchone() == (values,)


@given(st.lists(storable | st.none(), min_size=1, max_size=10))
@settings(max_examples=200, deadline=None)
def test_every_text_arrives_as_it_was_written(server_dsn: str, values: list[str | None]) -> None:
    with psycopg.connect(server_dsn) as conn:
        row = conn.execute("SELECT %s::text[]", [wire.array(values)]).fetchone()
    assert row == (values if any(value is not None for value in values) else None,)


def test_rows_become_columns_and_no_rows_empty_ones() -> None:
    assert wire.columns([(1, "a", None), (2, "b", None)], 3) == ["{1,2}", '{"a","b"}', None]
    assert wire.columns([], 2) == ["{}", "{}"]


class _Level(IntEnum):
    HIGH = 0


class _Name(StrEnum):
    MAIL = "mail"


def test_a_name_out_of_an_enum_is_written_like_any_other() -> None:
    assert (wire.array([_Name.MAIL]), wire.array([_Level.HIGH])) == ('{"mail"}', "{0}")
