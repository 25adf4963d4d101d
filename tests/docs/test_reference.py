"""The reference says what the code says: the pages are made from it, and nothing that exists is missing from them."""

from __future__ import annotations

import re
from functools import cache

import psycopg
import pytest

from redrive.events import FACTS, INNER_STEPS, STEPS
from tools import django_migration, documents, reference, reference_sources
from tools.reference_codes import CODES, SMTP_CODES, codes_in_sources, smtp_codes_in_sources


@cache
def pages() -> dict[str, str]:
    """Made once, and only where these tests run: a second's work."""
    return reference.pages()


@pytest.mark.parametrize("name", sorted(path.name for path in reference.PAGES.iterdir()))
def test_the_page_is_what_the_code_says(name: str) -> None:
    page = reference.PAGES / name
    assert page.read_text(encoding="utf-8") == pages()[name], "run: python -m tools.reference --write"


def test_no_page_is_left_over_or_missing() -> None:
    assert {path.name for path in reference.PAGES.iterdir()} == pages().keys()


def test_the_newest_django_migration_was_made_for_this_sql() -> None:
    assert django_migration.found() == django_migration.wanted(), "run: python -m tools.reference --write"


@pytest.mark.req("G-10")
def test_every_code_that_the_engine_gives_is_explained() -> None:
    assert set(CODES) == codes_in_sources()


@pytest.mark.req("G-10")
def test_every_code_of_the_smtp_transport_is_explained() -> None:
    assert set(SMTP_CODES) == smtp_codes_in_sources()


def test_every_step_and_fact_is_emitted_somewhere() -> None:
    assert {*STEPS, *FACTS} - INNER_STEPS - reference_sources.emitted() == set()


def test_every_versioned_function_of_the_schema_is_on_the_page(database: str) -> None:
    with psycopg.connect(database) as connection:
        found = connection.execute(
            "SELECT DISTINCT proname FROM pg_proc WHERE pronamespace = 'redrive'::regnamespace AND proname ~ '_[0-9]+$'"
        ).fetchall()
    assert {name for (name,) in found} == set(_headings("sql.md"))


def test_every_table_of_the_schema_is_on_the_page_with_its_columns(database: str) -> None:
    with psycopg.connect(database) as connection:
        found = connection.execute(
            """
            SELECT c.relname, array_agg(a.attname::text ORDER BY a.attnum)
              FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
             WHERE c.relnamespace = 'redrive'::regnamespace AND c.relkind IN ('r', 'p', 'c') AND NOT c.relispartition
             GROUP BY c.relname
            """
        ).fetchall()
    assert dict(found) == _columns_of_page()


# The commands of a replay are younger than the schemas.
WITHOUT_SCHEMA = {"replay", "replays", "replay_plan"}


@pytest.mark.req("G-21")
def test_every_document_of_the_command_line_has_a_schema() -> None:
    assert documents.names() - documents.known() - WITHOUT_SCHEMA == set(), documents.__doc__
    assert documents.known() - documents.names() == set()


def test_a_document_that_does_not_fit_would_be_noticed() -> None:
    good = {"schema": "redrive.db.sql/v1", "phase": "all", "sql": "SELECT 1"}
    documents.check("db.sql", good)
    for wrong in ({**good, "schema": "redrive.db.sql/v2"}, {**good, "sql": 5}, {**good, "more": 1}, {"phase": "all"}):
        with pytest.raises(AssertionError, match=r"db\.sql\.v1\.json"):
            documents.check("db.sql", wrong)


def _headings(name: str) -> list[str]:
    return re.findall(r"^## (\w+)$", pages()[name], re.MULTILINE)


def _columns_of_page() -> dict[str, list[str]]:
    _, *parts = re.split(r"^## ", pages()["tables.md"], flags=re.MULTILINE)
    return {part.split("\n")[0]: re.findall(r"^\| `(\w+)` \|", part, re.MULTILINE) for part in parts}
