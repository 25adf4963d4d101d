"""A database session whose statement may block, and an observer that can tell.

`Session.send` returns at once; `Session.progress` says whether the statement is done, or waits for a lock of
another session (asked of the server, never guessed from the time that it takes). Everything has a deadline, so
that a statement which waits for ever is a failure and not a hang.
"""

from __future__ import annotations

import select
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import psycopg
from psycopg.pq import ExecStatus

DEADLINE_SECONDS = 20.0
LOOK_SECONDS = 0.002

Progress = Literal["done", "blocked"]


@dataclass(frozen=True)
class Reply:
    """What a statement came to: the first column of the first row of its last result, or an SQLSTATE."""

    value: str | None = None
    sqlstate: str | None = None
    text: str = ""


class Session:
    """One connection, one statement at a time."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._pgconn = connection.pgconn
        self.pid = connection.info.backend_pid
        self.busy = False
        self.reply = Reply()

    def send(self, statement: str) -> None:
        assert not self.busy, "the session has a statement under way"
        self._pgconn.send_query(statement.encode())
        self.busy = True

    def run(self, statement: str) -> Reply:
        """Send, and wait for the reply."""
        self.send(statement)
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not self._arrived(LOOK_SECONDS):
            assert time.monotonic() < deadline, f"no reply to {statement}"
        return self.reply

    def progress(self, observer: Session, among: Sequence[Session]) -> Progress:
        """Wait until the statement is done or blocked by one of the others (and not by a passing vacuum, say)."""
        others = ", ".join(str(other.pid) for other in among)
        blocked = f"SELECT pg_blocking_pids({self.pid}) && ARRAY[{others}]"
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not self._arrived(LOOK_SECONDS):
            if observer.run(blocked).value == "t":
                return "done" if self._arrived(0) else "blocked"
            assert time.monotonic() < deadline, "a statement neither ended nor waited for anybody"
        return "done"

    def _arrived(self, seconds: float) -> bool:
        if not self.busy:
            return True
        if self._pgconn.is_busy():
            if not select.select([self._pgconn.socket], [], [], seconds)[0]:
                return False
            self._pgconn.consume_input()
            if self._pgconn.is_busy():
                return False
        self._collect()
        return True

    def _collect(self) -> None:
        reply = Reply()
        while (result := self._pgconn.get_result()) is not None:
            if result.status == ExecStatus.FATAL_ERROR:
                state = result.error_field(psycopg.pq.DiagnosticField.SQLSTATE) or b""
                reply = Reply(None, state.decode(), result.error_message.decode())
            elif result.status == ExecStatus.TUPLES_OK and reply.sqlstate is None:
                cell = result.get_value(0, 0) if result.ntuples else None
                reply = Reply(None if cell is None else cell.decode())
        self.busy = False
        self.reply = reply


@contextmanager
def sessions(dsn: str, count: int) -> Iterator[list[Session]]:
    """So many sessions in autocommit mode; transactions are begun by the statements themselves."""
    connections = [psycopg.connect(dsn, autocommit=True) for _ in range(count)]
    try:
        yield [Session(connection) for connection in connections]
    finally:
        for connection in connections:
            connection.close()
