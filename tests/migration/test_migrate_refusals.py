"""Servers and roles that an upgrade cannot work with are told so before anything is done."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql

from redrive.errors import SchemaError
from redrive.store.migrations import migrate
from redrive.store.migrations.migrate import check, require_current, upgrade
from tests.support.migration_sets import Files, session, value

pytestmark = pytest.mark.req("G-22")


@pytest.fixture
def one(files: Files) -> Files:
    return files.table("001_pre_a.sql", "CREATE TABLE redrive.a ()")


@pytest.fixture
def stranger(empty_database: str) -> Iterator[str]:
    """A role without any privilege of its own."""
    role = f"redrive_test_{secrets.token_hex(6)}"
    with session(empty_database) as connection:
        connection.execute(sql.SQL("CREATE ROLE {}").format(sql.Identifier(role)))
        yield role
        connection.execute(sql.SQL("DROP OWNED BY {} CASCADE").format(sql.Identifier(role)))
        connection.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))


def acting_as(connection: psycopg.Connection, role: str) -> psycopg.Connection:
    connection.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(role)))
    return connection


def grant(dsn: str, privilege: str, role: str) -> None:
    with session(dsn) as connection:
        connection.execute(sql.SQL("GRANT {} TO {}").format(sql.SQL(privilege), sql.Identifier(role)))


def test_an_older_server_is_refused_with_its_version_and_the_bound(
    empty_database: str, one: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrate, "SERVER_VERSION_MIN", 990000)
    with pytest.raises(SchemaError, match=r"The server is PostgreSQL 1\d\.\d+.*; Redrive needs 99 or later"):
        upgrade(empty_database, sets=[one.as_set()])
    assert check(empty_database, sets=[one.as_set()]).state == "absent"


def test_the_oldest_server_is_fifteen() -> None:
    assert migrate.SERVER_VERSION_MIN == 150000


def test_a_read_only_session_is_refused(empty_database: str, one: Files) -> None:
    with session(empty_database, options="-c default_transaction_read_only=on") as connection:
        with pytest.raises(SchemaError, match="read-only"):
            upgrade(connection, sets=[one.as_set()])


def test_a_standby_is_refused() -> None:
    with pytest.raises(SchemaError, match=r"standby .* connect to the primary"):
        migrate._refuse_server(170000, "17.1", in_recovery=True, read_only=True)


def test_a_role_that_may_not_create_schemas_is_told_the_privilege(
    empty_database: str, one: Files, stranger: str
) -> None:
    with session(empty_database) as connection:
        name = connection.info.dbname
        with pytest.raises(
            SchemaError,
            match=rf'{stranger} has no CREATE privilege on DATABASE "{name}".*GRANT CREATE ON DATABASE',
        ):
            upgrade(acting_as(connection, stranger), sets=[one.as_set()])


def test_a_role_that_may_not_create_in_the_schema_is_told_the_privilege(
    empty_database: str, one: Files, stranger: str
) -> None:
    with session(empty_database) as connection:
        connection.execute("CREATE SCHEMA redrive")
        with pytest.raises(SchemaError, match=r"no CREATE privilege on SCHEMA redrive.*GRANT CREATE ON SCHEMA redrive"):
            upgrade(acting_as(connection, stranger), sets=[one.as_set()])


def test_a_role_that_owns_the_schema_needs_no_privilege_on_the_database(
    empty_database: str, one: Files, stranger: str
) -> None:
    with session(empty_database) as connection:
        connection.execute(sql.SQL("CREATE SCHEMA redrive AUTHORIZATION {}").format(sql.Identifier(stranger)))
        assert len(upgrade(acting_as(connection, stranger), sets=[one.as_set()]).applied) == 1
    assert value(empty_database, "SELECT applied_by FROM redrive.schema_version") == stranger


def test_a_role_that_does_not_own_a_table_is_told_who_may(empty_database: str, one: Files, stranger: str) -> None:
    upgrade(empty_database, sets=[one.as_set()])
    one.table("002_pre_b.sql", "ALTER TABLE redrive.a ADD COLUMN b int")
    grant(empty_database, "ALL ON SCHEMA redrive", stranger)
    grant(empty_database, "ALL ON redrive.schema_version", stranger)
    with session(empty_database) as connection:
        with pytest.raises(SchemaError, match=r"002_pre_b\.sql: must be owner .* as the owner of the schema redrive"):
            upgrade(acting_as(connection, stranger), sets=[one.as_set()])


def test_a_role_that_may_not_read_the_versions_is_told_the_grants(
    empty_database: str, one: Files, stranger: str
) -> None:
    upgrade(empty_database, sets=[one.as_set()])
    with session(empty_database) as connection:
        with pytest.raises(SchemaError, match=r"may not read redrive\.schema_version.*GRANT USAGE ON SCHEMA redrive"):
            require_current(acting_as(connection, stranger), sets=[one.as_set()])


def test_a_role_with_those_grants_can_ask(empty_database: str, one: Files, stranger: str) -> None:
    upgrade(empty_database, sets=[one.as_set()])
    grant(empty_database, "USAGE ON SCHEMA redrive", stranger)
    grant(empty_database, "SELECT ON redrive.schema_version", stranger)
    with session(empty_database) as connection:
        require_current(acting_as(connection, stranger), sets=[one.as_set()])
