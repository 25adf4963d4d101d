"""A semicolon ends a statement only where PostgreSQL says so."""

from __future__ import annotations

import psycopg
import pytest

from redrive.store.migrations.statements import split

pytestmark = pytest.mark.req("G-22")

HIDDEN = {
    "string": "SELECT 'a;b'",
    "doubled quote": "SELECT 'it''s; fine'",
    "backslash in a plain string": r"SELECT 'ends in \'",
    "backslash in an escape string": r"SELECT E'quote \' ; still inside'",
    "escape string ending in a doubled backslash": r"SELECT E'\\'",
    "name": 'SELECT 1 AS "a;b""c;d"',
    "dollar quote": "SELECT $$a;b$$",
    "tagged dollar quote": "SELECT $body$ a; $$ b; $$ ; $other$ $body$",
    "letters before a dollar are a name": "SELECT 1 AS a$b$",
    "line comment": "SELECT 1 -- a;b 'open\n + 2",
    "nested block comment": "SELECT /* a; /* b; */ c; ' */ 1",
    "parentheses": "CREATE RULE r AS ON INSERT TO t DO ALSO (DELETE FROM u; DELETE FROM v)",
    "atomic body": (
        "CREATE FUNCTION f(i int) RETURNS int BEGIN ATOMIC SELECT 1; SELECT CASE WHEN i > 0 THEN 1 ELSE 2 END; END"
    ),
    "array subscript": "SELECT ('{1,2}'::int[])[1:2]",
    "parameter": "PREPARE p AS SELECT $1::int",
}


@pytest.mark.parametrize("text", HIDDEN.values(), ids=HIDDEN.keys())
def test_a_hidden_semicolon_ends_no_statement(text: str) -> None:
    found = split(f"{text};\nSELECT 'next'")
    assert [statement.text for statement in found] == [text, "SELECT 'next'"]


def test_each_hidden_semicolon_is_one_statement_for_postgresql_too(empty_database: str) -> None:
    # PREPARE accepts exactly one statement; what it says of ours is the measure of the table above.
    with psycopg.connect(empty_database, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (); CREATE TABLE u (); CREATE TABLE v ()")
        for text in HIDDEN.values():
            result = connection.pgconn.prepare(b"", text.encode())
            assert result.status == psycopg.pq.ExecStatus.COMMAND_OK, result.error_message


def test_comments_and_empty_statements_are_left_out() -> None:
    assert split("-- only this\n;; /* and this */ ;") == []


def test_a_statement_knows_its_line_and_its_words() -> None:
    first, second = split("-- heading\n\nselect 'WORD', \"Name\";\n\n  /* x\n */ Create Index b")
    assert (first.line, first.words, first.terminated) == (3, ("SELECT",), True)
    assert (second.line, second.words, second.terminated) == (6, ("CREATE", "INDEX", "B"), False)


@pytest.mark.parametrize("text", ["SELECT 'a", 'SELECT "a', "SELECT $$a", "SELECT $x$a$y$", "/* /* */", "SELECT E'\\'"])
def test_what_is_never_closed_is_refused_with_its_line(text: str) -> None:
    with pytest.raises(ValueError, match=r"line 2: .* is opened and never closed"):
        split(f"SELECT 1;\n{text}")


def test_a_long_string_is_read_in_linear_time() -> None:
    body = "it''s " * 50_000
    assert len(split(f"SELECT '{body}'; SELECT $${body}$$; SELECT E'{body}'")) == 3
