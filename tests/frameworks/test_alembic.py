"""Our schema as a revision of Alembic, online over every driver and offline as a script; autogenerate leaves it be."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import Column, Integer, MetaData, Table, create_engine, make_url
from sqlalchemy.engine import URL
from sqlalchemy.pool import NullPool

import redrive.alembic
from redrive.store.migrations import migrate
from tests.support.doors import parts_of

_ENV = """
import asyncio
from alembic import context
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

given = context.config.attributes


def run(connection):
    context.configure(connection=connection)
    with context.begin_transaction():
        context.run_migrations()


async def arun():
    async with create_async_engine(given["url"], poolclass=NullPool, **given["options"]).connect() as connection:
        await connection.run_sync(run)
        await connection.commit()


if context.is_offline_mode():
    context.configure(url=given["url"], dialect_opts={"paramstyle": "named"})
    with context.begin_transaction():
        context.run_migrations()
elif given["is_async"]:
    asyncio.run(arun())
else:
    with create_engine(given["url"], poolclass=NullPool, **given["options"]).connect() as connection:
        run(connection)
        connection.commit()
"""
_REVISION = """
import redrive.alembic
from alembic import op

revision, down_revision = "0001", None


def upgrade():
    op.execute("CREATE TABLE public.before (id int)")
    redrive.alembic.upgrade(op)
    op.execute("CREATE TABLE public.after (id int)")


def downgrade():
    op.execute("DROP TABLE public.before, public.after")
"""
_TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1"


@pytest.fixture
def config(tmp_path: Path, empty_database: str) -> Config:
    (tmp_path / "versions").mkdir()
    (tmp_path / "env.py").write_text(_ENV)
    (tmp_path / "versions" / "0001.py").write_text(_REVISION)
    config = Config()
    config.set_main_option("script_location", str(tmp_path))
    config.attributes.update(url=url_of(empty_database, "psycopg"), is_async=False, options={})
    return config


def url_of(dsn: str, driver: str) -> URL:
    """A socket's directory stands in the query, as SQLAlchemy wants it."""
    parts = parts_of(dsn)
    is_path = str(parts.get("host", "")).startswith("/")
    return make_url(f"postgresql+{driver}://").set(
        username=parts.get("user"),
        password=parts.get("password"),
        database=parts["dbname"],
        host=None if is_path else parts.get("host"),
        port=int(parts["port"]) if "port" in parts else None,
        query={"host": str(parts["host"])} if is_path else {},
    )


def tables(dsn: str) -> list[str]:
    with psycopg.connect(dsn) as conn:
        return [name for (name,) in conn.execute(_TABLES).fetchall()]


@pytest.mark.parametrize(
    ("driver", "is_async"), [("psycopg", False), ("psycopg2", False), ("psycopg", True), ("asyncpg", True)]
)
def test_a_revision_brings_the_schema_and_a_second_time_leaves_it(
    config: Config, empty_database: str, driver: str, is_async: bool
) -> None:
    config.attributes.update(url=url_of(empty_database, driver), is_async=is_async)
    command.upgrade(config, "head")
    assert migrate.check(empty_database).state == "current"
    assert tables(empty_database) == ["after", "alembic_version", "before"]
    command.downgrade(config, "base")
    command.upgrade(config, "head")
    assert migrate.check(empty_database).state == "current"


def test_what_only_the_driver_was_told_is_known_too(config: Config, empty_database: str) -> None:
    """A password from a vault, a host that is chosen while connecting: none of it is in the URL."""
    url = url_of(empty_database, "psycopg").set(database="elsewhere")
    config.attributes.update(url=url, options={"connect_args": {"dbname": parts_of(empty_database)["dbname"]}})
    command.upgrade(config, "head")
    assert migrate.check(empty_database).state == "current"


def test_offline_the_script_brings_the_same(config: Config, empty_database: str) -> None:
    config.output_buffer = io.StringIO()
    command.upgrade(config, "head", sql=True)
    assert migrate.check(empty_database).state == "absent"
    with psycopg.connect(empty_database, autocommit=True) as conn:
        conn.execute(config.output_buffer.getvalue().encode())
    assert migrate.check(empty_database).state == "current"
    assert tables(empty_database) == ["after", "alembic_version", "before"]


@pytest.fixture
def compared(database: str) -> Iterator[Any]:
    """What autogenerate would want, given options."""
    # The tests' login is called as our schema is, and what is in the schema of its name would count as the default one.
    options = {"options": "-c search_path=public"}
    engine = create_engine(url_of(database, "psycopg"), poolclass=NullPool, connect_args=options)
    metadata = MetaData()
    Table("orders", metadata, Column("id", Integer, primary_key=True))
    with engine.connect() as connection:

        def wanted(**options: Any) -> set[str]:
            context = MigrationContext.configure(connection, opts={"include_schemas": True, **options})
            return {f"{change[0]} {change[1].name}" for change in compare_metadata(context, metadata)}

        yield wanted


def test_autogenerate_leaves_our_tables_alone(compared: Any) -> None:
    assert "remove_table message" in compared()
    assert compared(include_name=redrive.alembic.include_name) == {"add_table orders"}
    assert compared(include_object=redrive.alembic.include_object) == {"add_table orders"}
