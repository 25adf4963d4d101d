"""One migrator at a time: a session-level advisory lock, and the watch on the session that blocks a step.

The lock is polled: a session that waits inside `pg_advisory_lock` keeps its snapshot, and CREATE INDEX CONCURRENTLY of
the migrator that holds the lock would wait for that snapshot, a deadlock. Time is the server's.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from time import sleep
from typing import Any

import psycopg
from psycopg.rows import tuple_row

from redrive.errors import SchemaError

Tell = Callable[[str], None]
Connection = psycopg.Connection[Any]

LOCK_KEY = 0x72656472_6D696772  # "redrmigr"
POLL_SECONDS = 0.1
TELL_SECONDS = 5.0
WATCH_SECONDS = 0.05
QUERY_LENGTH_MAX = 200

_TRY_LOCK = "SELECT pg_try_advisory_lock(%s), extract(epoch FROM clock_timestamp())::float8"
_OWN_LOCK = "AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
_HOLDERS = f"""
    SELECT l.pid, a.application_name, a.usename::text, a.state,
           extract(epoch FROM clock_timestamp() - a.backend_start)::int, a.query
      FROM pg_locks AS l LEFT JOIN pg_stat_activity AS a USING (pid)
     WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 {_OWN_LOCK}
       AND l.classid::bigint = {LOCK_KEY >> 32} AND l.objid::bigint = {LOCK_KEY & 0xFFFFFFFF}
"""  # noqa: S608 - only constants of this module
_BLOCKERS = """
    SELECT pid, application_name, usename::text, state,
           extract(epoch FROM clock_timestamp() - coalesce(xact_start, backend_start))::int, query
      FROM pg_stat_activity WHERE pid = ANY (pg_blocking_pids(%s)) ORDER BY pid
"""


def ask(conn: Connection, query: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> list[tuple[Any, ...]]:
    """Rows as tuples, whatever the row factory of the caller's connection."""
    return conn.cursor(row_factory=tuple_row).execute(query.encode(), values or None).fetchall()


@contextmanager
def only_migrator(conn: Connection, *, wait_seconds: float, tell: Tell) -> Iterator[None]:
    _refuse_lending_pooler(conn)
    _acquire(conn, wait_seconds, tell)
    try:
        confirm_only_migrator(conn)
        yield
    finally:
        if not conn.closed:
            conn.execute("SELECT pg_advisory_unlock(%s)", [LOCK_KEY])


def _refuse_lending_pooler(conn: Connection) -> None:
    """Raises if two clients at once get one server session: a lock taken there could not be found again."""
    if _server_pid(conn) == conn.info.backend_pid:
        return  # no pooler in between
    with suppress(psycopg.OperationalError):  # no session to spare; then only a vanished lock tells
        with _second_connection(conn) as other:
            if _server_pid(other) == _server_pid(conn):
                raise _lending_pooler("One server session answered two clients at once")


def _acquire(conn: Connection, wait_seconds: float, tell: Tell) -> None:
    started = told = None
    while True:
        taken, now = ask(conn, _TRY_LOCK, [LOCK_KEY])[0]
        if taken:
            return
        started = now if started is None else started
        holder = ", ".join(map(_describe, ask(conn, _HOLDERS))) or "a session that has just ended"
        if now - started >= wait_seconds:
            raise SchemaError(
                f"Another migrator held the lock all the {wait_seconds:g} s that this one waited: {holder}.",
                next="wait for it, or end it with SELECT pg_terminate_backend(pid)",
            )
        if told is None or now - told >= TELL_SECONDS:
            tell(f"Waiting for another migrator since {now - started:.0f} s: {holder}.")
            told = now
        sleep(POLL_SECONDS)


def confirm_only_migrator(conn: Connection) -> None:
    """Raises if the server session that runs this statement does not hold the lock.

    In a transaction this holds until its end, also behind a pooler that lends sessions by transaction.
    """
    if not ask(conn, f"{_HOLDERS} AND l.pid = pg_backend_pid()"):
        raise _lending_pooler("The migrator's lock vanished between two statements")


def _lending_pooler(symptom: str) -> SchemaError:
    return SchemaError(
        f"{symptom}: the connection goes through a pooler that lends server sessions by transaction.",
        next="give the migrator the address of the server itself, or of a pooler in session mode",
    )


def _server_pid(conn: Connection) -> int:
    return int(ask(conn, "SELECT pg_backend_pid()")[0][0])


def _second_connection(conn: Connection) -> Connection:
    return psycopg.connect(conn.info.dsn, password=conn.info.password or None, autocommit=True)


class Blockers:
    """The sessions last seen to block the migrator, in words."""

    def __init__(self) -> None:
        self.seen = ""


@contextmanager
def watching(conn: Connection, blockers: Blockers, tell: Tell) -> Iterator[None]:
    """A second session watches which sessions block the first, and tells of every change from a thread of its own."""
    pid = _server_pid(conn)
    stop = threading.Event()
    try:
        observer = _second_connection(conn)
    except psycopg.OperationalError as error:
        # No session to spare is no reason to fail the step; the error then says why no blocker is named.
        blockers.seen = f"unknown, a second connection failed: {error}"
        yield
        return
    thread = threading.Thread(target=_watch, args=(observer, pid, blockers, tell, stop), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        observer.close()


def _watch(observer: Connection, pid: int, blockers: Blockers, tell: Tell, stop: threading.Event) -> None:
    told = ""
    while not stop.wait(WATCH_SECONDS):
        try:
            rows = ask(observer, _BLOCKERS, [pid])
        except psycopg.Error:
            return  # the server went away; the step itself will say so
        if rows:
            blockers.seen = ", ".join(map(_describe, rows))
            names = ", ".join(str(row[0]) for row in rows)
            if names != told:
                tell(f"Waiting for a lock held by {blockers.seen}.")
            told = names


def _describe(row: tuple[Any, ...]) -> str:
    pid, application, user, state, seconds, query = row
    query = " ".join((query or "").split())[:QUERY_LENGTH_MAX]
    name = application or "no application_name"
    return f"pid {pid} ({name}, user {user}, {state}, since {seconds} s): {query}"
