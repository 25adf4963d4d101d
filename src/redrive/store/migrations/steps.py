"""Runs one migration file: in one transaction with its row, or statement by statement.

A transactional file and its row in `redrive.schema_version` commit together. A file outside a transaction gets its row
last: interrupted, it runs again from the top, and an index that CREATE INDEX CONCURRENTLY left INVALID is dropped
first. A step waits for a lock only briefly, lets the application's queries pass, and tries again a few times.
"""

from contextlib import nullcontext
from dataclasses import dataclass
from time import sleep
from typing import Any

import psycopg
from psycopg import errors

from redrive.errors import SchemaError
from redrive.store.migrations.files import ConcurrentIndex, MigrationFile, concurrent_index
from redrive.store.migrations.lock import Blockers, Connection, Tell, ask, confirm_only_migrator, watching
from redrive.store.migrations.state import UPGRADE
from redrive.store.migrations.statements import Statement, line_of

LOCK_ATTEMPTS = 5

_SET = "SELECT set_config('lock_timeout', %s, %s)"
_RECORD = """
    INSERT INTO redrive.schema_version AS old
           (set_name, number_or_file, phase, checksum, duration_ms, product_version)
    VALUES (%(set)s, %(key)s, %(phase)s, %(checksum)s,
            round(extract(epoch FROM clock_timestamp() - %(started)s) * 1000), %(version)s)
    ON CONFLICT (set_name, number_or_file) DO UPDATE
       SET checksum = excluded.checksum, duration_ms = excluded.duration_ms,
           product_version = excluded.product_version, applied_at = excluded.applied_at,
           applied_by = excluded.applied_by
     WHERE old.phase = 'verb'
    RETURNING duration_ms
"""
_INVALID_INDEX = """
    SELECT format('%%I.%%I', n.nspname, c.relname)
      FROM pg_index AS i
      JOIN pg_class AS c ON c.oid = i.indexrelid
      JOIN pg_namespace AS n ON n.oid = c.relnamespace
     WHERE i.indrelid = to_regclass(%s) AND c.relname = (parse_ident(%s))[1] AND NOT i.indisvalid
"""


@dataclass(frozen=True, slots=True)
class Step:
    """A file that was applied."""

    name: str  # set/tables/file.sql or set/verbs/file.sql
    phase: str  # pre, post or verb
    duration_seconds: float  # of the attempt that succeeded


@dataclass(frozen=True, slots=True)
class LockRetry:
    lock_timeout_seconds: float  # for a lock that makes others queue behind us
    wait_seconds: float  # for waits that block no other session: another migrator, CONCURRENTLY
    tell: Tell


def apply(conn: Connection, file: MigrationFile, lock_retry: LockRetry) -> Step:
    blockers = Blockers()
    for attempt in range(1, LOCK_ATTEMPTS + 1):
        try:
            return _attempt(conn, file, lock_retry, blockers, watch=attempt > 1 or not file.transactional)
        except (errors.LockNotAvailable, errors.DeadlockDetected) as error:
            if attempt < LOCK_ATTEMPTS:
                _back_off(file, attempt, error, lock_retry)
        except psycopg.Error as error:
            raise _failed(conn, file, error) from error
    raise SchemaError(
        f"{file.label} did not get its locks in {LOCK_ATTEMPTS} attempts. "
        f"Blocked by {blockers.seen or 'a session that could not be seen'}.",
        next=f"let that transaction end, or end it with SELECT pg_terminate_backend(pid), then {UPGRADE}",
    )


def _attempt(conn: Connection, file: MigrationFile, lock_retry: LockRetry, blockers: Blockers, *, watch: bool) -> Step:
    run = _run_in_transaction if file.transactional else _run_statements
    with watching(conn, blockers, lock_retry.tell) if watch else nullcontext():
        milliseconds = run(conn, file, lock_retry)
    lock_retry.tell(f"Applied {file.label} in {milliseconds} ms.")
    return Step(file.label, file.phase, milliseconds / 1000)


def _back_off(file: MigrationFile, attempt: int, error: psycopg.Error, lock_retry: LockRetry) -> None:
    """Longer each time, holding nothing, so that the queries which queued behind us can pass."""
    pause_seconds = lock_retry.lock_timeout_seconds * attempt
    lock_retry.tell(
        f"{file.label}: {error.diag.message_primary} (attempt {attempt} of {LOCK_ATTEMPTS}); "
        f"again in {pause_seconds:g} s."
    )
    sleep(pause_seconds)


def _run_in_transaction(conn: Connection, file: MigrationFile, lock_retry: LockRetry) -> int:
    with conn.transaction():
        confirm_only_migrator(conn)
        conn.execute(_SET, [_milliseconds(lock_retry.lock_timeout_seconds), True])
        started = _server_time(conn)
        _execute(conn, file.text)
        return _record(conn, file, started)


def _run_statements(conn: Connection, file: MigrationFile, lock_retry: LockRetry) -> int:
    started = _server_time(conn)
    for statement in file.statements:
        confirm_only_migrator(conn)
        _run_statement(conn, file, statement, lock_retry)
    return _record(conn, file, started)


def _run_statement(conn: Connection, file: MigrationFile, statement: Statement, lock_retry: LockRetry) -> None:
    # CONCURRENTLY waits for old transactions under a lock that blocks no other session; giving up early would
    # only throw the work away.
    harmless = "CONCURRENTLY" in statement.words
    limit_seconds = lock_retry.wait_seconds if harmless else lock_retry.lock_timeout_seconds
    conn.execute(_SET, [_milliseconds(limit_seconds), False])
    index = concurrent_index(statement)
    if index:
        _drop_if_invalid(conn, file, index, lock_retry.tell)
    try:
        _execute(conn, statement.text)
    except psycopg.Error as error:
        error.add_note(f"line {statement.line}")
        raise


def _drop_if_invalid(conn: Connection, file: MigrationFile, index: ConcurrentIndex, tell: Tell) -> None:
    for name in invalid_indexes(conn, [index]):
        tell(f"{file.label}: {name} is INVALID, left by an interrupted run; it is dropped and built again.")
        _execute(conn, f"DROP INDEX CONCURRENTLY IF EXISTS {name}")


def invalid_indexes(conn: Connection, indexes: list[ConcurrentIndex]) -> list[str]:
    """As quoted names with their schema."""
    return [row[0] for index in indexes for row in ask(conn, _INVALID_INDEX, [index.table, index.name])]


def _execute(conn: Connection, text: str) -> None:
    # As bytes and without parameters: sent as it stands, several statements at once, percent signs untouched.
    conn.execute(text.encode(), prepare=False)


def _record(conn: Connection, file: MigrationFile, started: Any) -> int:
    values = {
        "set": file.set_name,
        "key": file.key,
        "phase": file.phase,
        "checksum": file.checksum,
        "started": started,
        "version": file.version,
    }
    rows = ask(conn, _RECORD, values)
    if not rows:
        raise SchemaError(f"{file.label} was recorded by a program without the migrator's lock.", next=UPGRADE)
    return int(rows[0][0])


def _server_time(conn: Connection) -> Any:
    return ask(conn, "SELECT clock_timestamp()")[0][0]


def _milliseconds(seconds: float) -> str:
    return str(max(1, round(seconds * 1000)))  # 0 would mean no limit


def _failed(conn: Connection, file: MigrationFile, error: psycopg.Error) -> SchemaError:
    if conn.closed:
        return SchemaError(f"The connection was lost while {file.label} ran: {error}.", next=UPGRADE)
    said = error.diag
    message = f"{file.label}{_place(file, error)}: {said.message_primary}. {said.message_detail or ''}".strip()
    match error:
        case errors.InvalidFunctionDefinition() if file.number is None:
            advice = (
                "CREATE OR REPLACE cannot change what a function returns or what its parameters are called: "
                "give the function a new version number, or drop the old one in a numbered file"
            )
        case errors.InsufficientPrivilege():
            advice = f"run {UPGRADE} as the owner of the schema redrive"
        case _:
            advice = said.message_hint or f"correct the cause, then {UPGRADE}: what was applied before stays applied"
    return SchemaError(message, next=advice)


def _place(file: MigrationFile, error: psycopg.Error) -> str:
    if notes := getattr(error, "__notes__", None):
        return f", {notes[0]}"
    if position := error.diag.statement_position:
        return f", line {line_of(file.text, int(position) - 1)}"
    return f", {error.diag.context.splitlines()[0]}" if error.diag.context else ""
