"""Opens the store for a person, and explains in a sentence why it cannot be opened.

Errors of the driver become `Unreachable`, `SchemaError`, `NotAllowed` or `InvalidValue`. A DSN is never repeated: it
may hold a password.
"""

from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from redrive.errors import InvalidValue, NotAllowed, SchemaError, Unreachable
from redrive.ports import TransientFailure
from redrive.redact import HIDDEN
from redrive.store.migrations import migrate
from redrive.store.reads.models import READ_SECONDS_MAX
from redrive.store.runtime.postgres import PostgresStore

CONNECTIONS = 4
_SECRET_PARTS = frozenset({"password", "sslpassword", "oauth_client_secret"})


@asynccontextmanager
async def opened(dsn: str, *, name: str = "redrive cli") -> AsyncIterator[PostgresStore]:
    """Raises SchemaError unless this version can use the schema; errors inside the block are explained too."""
    with explained(dsn):
        async with PostgresStore(dsn, connections=CONNECTIONS, name=name) as store:
            await require_schema(store)
            yield store


async def require_schema(store: PostgresStore, sets: Iterable[migrate.MigrationSet] = ()) -> None:
    """sets: of the systems that have to be usable too."""
    async with store.connection() as conn:
        try:
            cursor = await conn.execute(migrate.READ_VERSIONS)
            rows = await cursor.fetchall()
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
            rows = None
    checked = migrate.compare(rows, sets)
    if checked.state not in migrate.USABLE:
        raise SchemaError(f"The schema is {checked.state}. {checked.detail}", next=checked.next)


@contextmanager
def explained(dsn: str) -> Iterator[None]:
    where = _where(dsn)
    try:
        yield
    except TransientFailure as failure:
        raise _unreachable(where, failure.__cause__ or failure) from failure
    except psycopg.errors.InsufficientPrivilege as error:
        raise NotAllowed(
            f"{_sentence(error)} (login of {where})",
            next="use a login that has the role redrive_operator (acts) or redrive_viewer (reads)",
        ) from error
    except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedFunction) as error:
        raise SchemaError(
            f"The schema is not what this version expects: {_sentence(error)}", next="redrive db check"
        ) from error
    except (psycopg.OperationalError, psycopg.InterfaceError, psycopg.errors.ReadOnlySqlTransaction) as error:
        raise _unreachable(where, error) from error


def without_secrets(dsn: str) -> str:
    """The DSN as key=value with its secrets hidden; all of it where it cannot be read."""
    try:
        parts: dict[str, Any] = {name: value for name, value in conninfo_to_dict(dsn).items() if value is not None}
    except psycopg.ProgrammingError:
        return HIDDEN
    return make_conninfo(**{name: HIDDEN if name in _SECRET_PARTS else value for name, value in parts.items()})


def _where(dsn: str) -> str:
    try:
        parts = conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        # The driver's own words repeat a piece of the DSN, which may be the password.
        raise InvalidValue(
            "The DSN cannot be read; it must look like postgresql://user@host:5432/database or 'host=… dbname=…'."
        ) from None
    host, port = parts.get("host") or parts.get("hostaddr"), parts.get("port")
    place = f"{host}:{port}" if host and port else host or "the default host"
    database = parts.get("dbname")
    return f"PostgreSQL at {place}" + (f", database {database}" if database else "")


def _unreachable(where: str, error: BaseException) -> Unreachable:
    if isinstance(error, psycopg.errors.QueryCanceled):
        return Unreachable(
            f"{where} took longer than {READ_SECONDS_MAX:g} s to answer.",
            next="ask for less (--limit, --destination), or look at what keeps the server busy",
        )
    if isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
        return Unreachable(
            f"{where} accepts no writes: it is a standby, or in maintenance.",
            next="name the server that writes (target_session_attrs=read-write finds it among several hosts)",
        )
    return Unreachable(
        f"{where} does not answer: {_sentence(error)}",
        next="check --dsn (REDRIVE_DSN) and whether the server runs",
    )


def _sentence(error: BaseException) -> str:
    primary = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    lines = (primary or str(error)).strip().splitlines() or [type(error).__name__]
    return lines[0].rstrip(". ") + "."
