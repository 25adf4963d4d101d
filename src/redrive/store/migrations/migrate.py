"""Brings a database's schema to what this version expects, and says how far it is from that.

`upgrade` applies pending files, one migrator at a time; any number of starts at once is safe. `check` reports,
`require_current` refuses, `compare` judges rows that the caller read, `sql` prints a script. Forward only. `upgrade`
needs a direct connection, or a pooler in session mode.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, get_args

import psycopg
from psycopg.pq import TransactionStatus

from redrive.errors import InvalidValue, SchemaError, UsageError
from redrive.store.migrations.files import (
    LoadedSet,
    MigrationFile,
    MigrationSet,
    concurrent_indexes,
    engine_set,
    load,
)
from redrive.store.migrations.lock import Connection, Tell, ask, only_migrator
from redrive.store.migrations.script import BOOTSTRAP, SEARCH_PATH, sql
from redrive.store.migrations.state import (
    READ_VERSIONS,
    USABLE,
    Applied,
    Checked,
    Phase,
    State,
    compare,
    judge_all,
    plan,
)
from redrive.store.migrations.steps import LockRetry, Step, apply, invalid_indexes

__all__ = [
    "READ_VERSIONS",
    "USABLE",
    "Applied",
    "Checked",
    "MigrationSet",
    "Phase",
    "State",
    "Step",
    "Upgraded",
    "check",
    "compare",
    "engine_set",
    "require_current",
    "sql",
    "upgrade",
]

SERVER_VERSION_MIN = 150000
LOCK_TIMEOUT_SECONDS_MAX = 3600.0

# A migrator that was killed must not keep its lock, and its server session busy, until a long step ends.
_CLIENT_CHECK = {"client_connection_check_interval": "1s"}
_SERVER = """
    SELECT current_setting('server_version_num')::int, current_setting('server_version'), pg_is_in_recovery(),
           current_setting('transaction_read_only')::bool
"""
_PRIVILEGE = """
    SELECT current_user::text, current_database()::text, n.oid IS NOT NULL,
           CASE WHEN n.oid IS NULL THEN has_database_privilege(current_database(), 'CREATE')
                ELSE has_schema_privilege(n.oid, 'CREATE') END
      FROM (VALUES (1)) AS one LEFT JOIN pg_namespace AS n ON n.nspname = 'redrive'
"""
_TABLE_EXISTS = """
    SELECT EXISTS (SELECT FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
                    WHERE n.nspname = 'redrive' AND c.relname = 'schema_version')
"""


@dataclass(frozen=True, slots=True)
class Upgraded:
    applied: tuple[Step, ...]  # in the order in which they ran
    already_current: bool  # there was nothing to do in the phase that was asked for


def upgrade(
    dsn: str | Connection,
    *,
    phase: Phase = "all",
    sets: Iterable[MigrationSet] = (),
    lock_timeout_seconds: float = 5.0,
    wait_seconds: float = 600.0,
    progress: Tell | None = None,
) -> Upgraded:
    """Applies what is pending.

    `lock_timeout_seconds` bounds a wait for a lock that others queue behind; five attempts, with pauses.
    `wait_seconds` bounds waiting that blocks no other session: for another migrator, and inside CONCURRENTLY.
    `progress` gets sentences; while a step waits for a lock they come from another thread.
    """
    _refuse_arguments(phase, lock_timeout_seconds, wait_seconds)
    loaded = load(sets)
    lock_retry = LockRetry(lock_timeout_seconds, wait_seconds, progress or _say_nothing)
    with _migrator_session(dsn) as conn:
        _refuse_server(*ask(conn, _SERVER)[0])
        if not _pending(conn, loaded, phase):
            return Upgraded((), already_current=True)
        _refuse_privilege(*ask(conn, _PRIVILEGE)[0])
        with only_migrator(conn, wait_seconds=wait_seconds, tell=lock_retry.tell):
            _bootstrap(conn)
            # Read again: while we waited for the lock another migrator may have done all of it.
            applied = tuple([apply(conn, file, lock_retry) for file in _pending(conn, loaded, phase)])
    return Upgraded(applied, already_current=not applied)


def check(dsn: str | Connection, *, sets: Iterable[MigrationSet] = ()) -> Checked:
    sets = tuple(sets)
    with _reading_session(dsn) as conn:
        checked = compare(_read_versions(conn), sets)
        if checked.state not in USABLE:
            return checked
        indexes = [index for one in load(sets) for file in one.numbered for index in concurrent_indexes(file)]
        broken = invalid_indexes(conn, indexes)
    if not broken:
        return checked
    detail = f"The index {broken[0]} is INVALID: it costs every write and serves no query."
    return Checked("invalid", checked.pending, detail, f"REINDEX INDEX CONCURRENTLY {broken[0]}")


def require_current(dsn: str | Connection, *, sets: Iterable[MigrationSet] = ()) -> None:
    """Raises unless this version can run on the schema; a newer one, or a pending post phase, will do."""
    with _reading_session(dsn) as conn:
        checked = compare(_read_versions(conn), sets)
    if checked.state not in USABLE:
        raise SchemaError(f"The schema is {checked.state}. {checked.detail}", next=checked.next)


def _refuse_arguments(phase: str, lock_timeout_seconds: float, wait_seconds: float) -> None:
    if phase not in get_args(Phase):
        raise InvalidValue(f"The phase is {phase!r}; it must be one of {', '.join(get_args(Phase))}.")
    if not 0 < lock_timeout_seconds <= LOCK_TIMEOUT_SECONDS_MAX:
        raise InvalidValue(
            f"lock_timeout_seconds is {lock_timeout_seconds}; "
            f"it must be above 0 and at most {LOCK_TIMEOUT_SECONDS_MAX:g}."
        )
    if wait_seconds < 0:
        raise InvalidValue(f"wait_seconds is {wait_seconds}; it must be 0 or more.")


def _refuse_server(number: int, version: str, in_recovery: bool, read_only: bool) -> None:
    if number < SERVER_VERSION_MIN:
        raise SchemaError(
            f"The server is PostgreSQL {version}; Redrive needs {SERVER_VERSION_MIN // 10000} or later.",
            next="upgrade the server",
        )
    if in_recovery:
        raise SchemaError("The server is a standby and accepts no writes.", next="connect to the primary")
    if read_only:
        raise SchemaError(
            "The session is read-only.", next="connect without default_transaction_read_only, to the primary"
        )


def _refuse_privilege(user: str, database: str, schema_exists: bool, may_create: bool) -> None:
    if not may_create:
        target = "SCHEMA redrive" if schema_exists else f'DATABASE "{database}"'
        raise SchemaError(
            f"The role {user} has no CREATE privilege on {target}.",
            next=f'GRANT CREATE ON {target} TO "{user}", or run the upgrade as the owner',
        )


@contextmanager
def _connection(dsn: str | Connection) -> Iterator[Connection]:
    if isinstance(dsn, psycopg.Connection):
        yield dsn
        return
    with psycopg.connect(dsn, autocommit=True, fallback_application_name="redrive db") as conn:
        yield conn


@contextmanager
def _reading_session(dsn: str | Connection) -> Iterator[Connection]:
    """One transaction, or a savepoint in the caller's."""
    with _connection(dsn) as conn, conn.transaction():
        yield conn


@contextmanager
def _migrator_session(dsn: str | Connection) -> Iterator[Connection]:
    """In autocommit mode, with the migrator's settings; a caller's connection gets back what it had."""
    with _connection(dsn) as conn:
        if conn.info.transaction_status is not TransactionStatus.IDLE:
            raise UsageError("The connection has a transaction open; an upgrade runs its own transactions.")
        autocommit = conn.autocommit
        conn.autocommit = True
        before = _change_settings(conn, _settings(conn.info.server_version))
        with suppress(psycopg.errors.InvalidParameterValue):  # a server on Windows cannot look
            before |= _change_settings(conn, _CLIENT_CHECK)
        try:
            yield conn
        finally:
            if not conn.closed:
                _change_settings(conn, before)
                conn.autocommit = autocommit


def _settings(server_version: int) -> dict[str, str]:
    """Not the login's: the same files must give the same schema, and building an index may take its time."""
    settings = {
        "client_encoding": "UTF8",
        "lock_timeout": "0",
        "search_path": SEARCH_PATH,
        "standard_conforming_strings": "on",
        "statement_timeout": "0",
    }
    if server_version >= 170000:
        settings["transaction_timeout"] = "0"
    return settings


def _change_settings(conn: Connection, settings: dict[str, str]) -> dict[str, str]:
    """Returns what they were."""
    before: dict[str, str] = {}
    for name, value in settings.items():
        before[name] = ask(conn, "SELECT current_setting(%s)", [name])[0][0]
        conn.execute("SELECT set_config(%s, %s, false)", [name, value])
    return before


def _pending(conn: Connection, loaded: Sequence[LoadedSet], phase: Phase) -> list[MigrationFile]:
    judged = judge_all(_read_versions(conn), loaded)
    return [file for one in judged for file in plan(one, phase)]


def _read_versions(conn: Connection) -> list[tuple[Any, ...]] | None:
    if not ask(conn, _TABLE_EXISTS)[0][0]:
        return None
    try:
        return ask(conn, READ_VERSIONS)
    except psycopg.errors.InsufficientPrivilege as error:
        raise SchemaError(
            f"The role {conn.info.user} may not read redrive.schema_version: {error.diag.message_primary}.",
            next="GRANT USAGE ON SCHEMA redrive and SELECT ON redrive.schema_version to that role",
        ) from error


def _bootstrap(conn: Connection) -> None:
    conn.execute(BOOTSTRAP.encode())


def _say_nothing(_: str) -> None: ...
