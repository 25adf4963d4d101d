"""Every other language: one SELECT with the required arguments, by a role that may do nothing else (G-01, G-26)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import psycopg
import pytest

import redrive
from redrive.message import NewMessage


def row(connection: psycopg.Connection[Any], query: str) -> Any:
    return connection.execute(query.encode()).fetchone()


@pytest.mark.req("G-01")
def test_destination_and_body_are_all_it_takes(database: str) -> None:
    with psycopg.connect(database) as connection:
        result, id, sequence, state = row(connection, "SELECT * FROM redrive.enqueue_1('mail', '[1]')")
        assert (result, sequence, state) == ("new", None, "pending")
        assert isinstance(id, UUID)
        kept = "SELECT tenant, kind, content_type, headers, level, key, body FROM redrive.message"
        assert row(connection, kept) == ("default", "", "application/json", None, 1, None, b"[1]")


@pytest.mark.req("G-26")
def test_the_verb_says_new_duplicate_or_conflict_and_raises_nothing(database: str) -> None:
    with psycopg.connect(database) as connection:
        answers = [
            row(connection, f"SELECT result, id FROM redrive.enqueue_1('mail', '{body}', 'k')") for body in (1, 1, 2)
        ]
        assert [result for result, _ in answers] == ["new", "duplicate", "conflict"]
        assert len({id for _, id in answers}) == 1


@pytest.mark.req("G-26")
def test_python_and_sql_agree_on_what_is_the_same(database: str) -> None:
    with psycopg.connect(database) as connection:
        first = row(connection, "SELECT id FROM redrive.enqueue_1('mail', '[1,2]', 'k', 't', 'x')")[0]
        again = redrive.enqueue(connection, "mail", (1, 2), key="k", tenant="t", kind="x")
        assert (again.id, again.already_existed) == (first, True)


def test_bulk_takes_arrays_and_leaves_out_what_is_absent(database: str) -> None:
    with psycopg.connect(database) as connection:
        query = (
            "SELECT place, result FROM redrive.enqueue_many_1(ARRAY['a', 'b', 'c'], ARRAY['1', '2', '1']::bytea[],"
            " ARRAY['k', NULL, 'k'], ARRAY['t', 't', 't'], ARRAY['', '', ''], ARRAY['x', 'x', 'x'],"
            " NULL, NULL, NULL, ARRAY[1, 1, 1]::smallint[]) ORDER BY place"
        )
        assert connection.execute(query).fetchall() == [(1, "new"), (2, "new"), (3, "conflict")]
        arrays_of_other_lengths = query.replace("ARRAY['t', 't', 't']", "ARRAY['t', 't']")
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="tenant has 0 characters"):
            connection.execute(arrays_of_other_lengths.encode())


def test_the_producers_role_may_enqueue_and_nothing_else(database: str) -> None:
    with psycopg.connect(database) as connection:
        connection.execute("SET ROLE redrive_producer")
        redrive.enqueue(connection, "mail", 1, key="k")
        assert redrive.enqueue(connection, "mail", 1, key="k").already_existed
        receipts = redrive.enqueue_many(connection, [NewMessage("mail", n, key=f"k{n}") for n in range(3)] * 2)
        assert [r.already_existed for r in receipts] == [False] * 3 + [True] * 3
        connection.commit()
        for query in (
            "SELECT * FROM redrive.message",
            "INSERT INTO redrive.pending (id) VALUES (gen_random_uuid())",
            "SELECT redrive.holder_of('default', '')",
            "SELECT redrive.state_of(gen_random_uuid())",
        ):
            connection.execute("SET ROLE redrive_producer")
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(query.encode())
            connection.rollback()


def test_a_search_path_of_the_callers_does_not_matter(database: str) -> None:
    with psycopg.connect(database) as connection:
        connection.execute("CREATE SCHEMA evil")
        connection.execute("CREATE TABLE evil.idempotency (LIKE redrive.idempotency)")
        connection.execute("CREATE FUNCTION evil.sha256(bytea) RETURNS bytea LANGUAGE sql AS $$SELECT ''::bytea$$")
        connection.execute("SET search_path = evil, pg_catalog")
        redrive.enqueue(connection, "mail", 1, key="a")
        redrive.enqueue_many(connection, [NewMessage("mail", 1, key="b")])
        assert row(connection, "SELECT count(*) FROM evil.idempotency") == (0,)
        assert row(connection, "SELECT count(DISTINCT key_hash) FROM redrive.idempotency") == (2,)


@pytest.mark.parametrize("query", ["SELECT redrive.enqueue_1('mail', '1', 'k1')", "SELECT redrive.state_of('{id}')"])
def test_a_plan_made_while_the_tables_were_tiny_does_not_read_them_whole_later(database: str, query: str) -> None:
    """A session keeps its plans; one made for five rows must not read thousands from end to end."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("SELECT redrive.enqueue_1('mail', '1', 'k' || n) FROM generate_series(1, 5) n")
        connection.execute("ANALYZE redrive.idempotency, redrive.pending, redrive.message, redrive.attempt")
        statement = query.format(id=row(connection, "SELECT id FROM redrive.message WHERE key = 'k1'")[0])
        for _ in range(10):
            connection.execute(statement.encode())
        with psycopg.connect(database) as other:
            redrive.enqueue_many(other, [NewMessage("mail", 1, key=f"x{n}") for n in range(3000)])
        scans = "SELECT sum(seq_tup_read) FROM pg_stat_xact_user_tables WHERE schemaname = 'redrive'"
        with connection.transaction():
            before = row(connection, scans)[0]
            connection.execute(statement.encode())
            assert row(connection, scans)[0] - before < 100
