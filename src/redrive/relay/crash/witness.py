"""What a relay remembers of the money that it sent, outside the database: a restored one does not know it (P-10).

The last attempts are in memory and, with a state directory, in a file that outlives the relay: lines appended before
the send begins, so that a kill loses nothing. Each process has its own locked file; the next process takes over what a
dead one left. After a new connection the files of all relays on the machine are read again: the relay that sent a
payment may ask later than one that would send it again. SQL: `verbs/witness.sql`.
"""

import fcntl
import os
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final
from uuid import UUID

from redrive.message import Attempt, Fence, WorkerId
from redrive.ports import Sent, Wal, Witnessed
from redrive.store.runtime.postgres import PostgresStore

REMEMBERED: Final = 400  # attempts; the last ones suffice: a database is restored to a moment
BYTES_MAX: Final = 128 * 1024  # of a file, before it is written anew
FILES_MAX: Final = 200  # of other processes that are read at a start


class Witness:
    """directory: None = it remembers only while it runs. on_failure: hears why a file cannot be kept; the relay goes on
    with what it has in memory."""

    def __init__(
        self,
        store: PostgresStore,
        worker: WorkerId,
        *,
        directory: Path | None,
        on_failure: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._store = store
        self._worker = worker
        self._directory = directory
        self._on_failure = on_failure
        self._sent: deque[Sent] = deque(maxlen=REMEMBERED)
        self._wal: Wal | None = None
        self._database: UUID | None = None
        self._file: _File | None = None
        self._remembers = False
        self._opened = False
        self._asked_at_connection = -1

    @property
    def must_ask(self) -> bool:
        """A connection on which nothing was asked yet may lead to another database."""
        return self._store.connections_made != self._asked_at_connection

    def note(self, attempt: Attempt) -> None:
        """This attempt is about to be sent."""
        sent = Sent(attempt.id, attempt.number, attempt.claimed_at)
        self._sent.append(sent)
        self._write(_line(sent))

    def has_sent(self, fence: Fence) -> bool:
        return any((one.id, one.attempt) == (fence.id, fence.attempt) for one in self._sent)

    async def ask(self) -> Witnessed:
        if not self._opened:
            await self._open()
        elif self.must_ask:
            self._read_others()
        made = self._store.connections_made
        found = await self._store.witness(
            self._worker,
            kept="memory" if self._file is None else "file",
            remembers=self._remembers,
            sent=list(self._sent),
            wal=self._wal,
        )
        self._asked_at_connection = max(made, self._asked_at_connection)
        if not found.closed:
            self._remembers = True  # from here on it would notice
        self._wal = found.wal
        self._write(_line(found.wal))
        return found

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    async def _open(self) -> None:
        """Read what was remembered before, and begin a file of our own."""
        if self._directory is not None:
            self._database = database = await self._store.database_id()
            try:
                self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                remembered = _remembered(self._directory, database)
                self._take(remembered.lines)
                self._file = _File(self._directory / f"{_prefix(database)}{self._worker}.log", self._lines())
                for path in remembered.left_behind:
                    if path != self._file.path:
                        path.unlink(missing_ok=True)
            except OSError as error:
                self._on_failure(type(error).__name__)
        self._remembers = bool(self._sent)
        self._opened = True

    def _read_others(self) -> None:
        """The next claim may be a payment that another relay on this machine has sent."""
        if self._file is None or self._directory is None or self._database is None:
            return
        try:
            self._take(_remembered(self._directory, self._database).lines)
        except OSError as error:
            self._on_failure(type(error).__name__)

    def _take(self, lines: Iterable[str]) -> None:
        found = [one for one in map(_read, lines) if one is not None]
        sent = {*self._sent, *(one for one in found if isinstance(one, Sent))}
        self._sent = deque(sorted(sent, key=lambda one: one.at), maxlen=REMEMBERED)
        self._wal = max(
            (one for one in [*found, self._wal] if isinstance(one, Wal)), key=lambda one: one.at, default=None
        )

    def _lines(self) -> list[str]:
        return [_line(one) for one in self._sent] + ([] if self._wal is None else [_line(self._wal)])

    def _write(self, line: str) -> None:
        if self._file is None:
            return
        try:
            self._file.append(line)
            if self._file.bytes > BYTES_MAX:
                self._file.write_anew(self._lines())
        except OSError as error:
            self.close()
            self._on_failure(type(error).__name__)


class _File:
    """One file of lines, locked by this process while it is open."""

    def __init__(self, path: Path, lines: Sequence[str]) -> None:
        self.path = path
        self._descriptor = -1
        self.bytes = 0
        self.write_anew(lines)

    def append(self, line: str) -> None:
        """One write: the operating system has all of it, even if the process dies now."""
        data = line.encode()
        written = os.write(self._descriptor, data)
        self.bytes += written
        if written < len(data):
            raise OSError("no room for a whole line")

    def write_anew(self, lines: Sequence[str]) -> None:
        """Under another name first: a kill in between leaves the old one."""
        fresh = self.path.with_suffix(".new")
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            written = os.write(descriptor, "".join(lines).encode())
            os.fsync(descriptor)
            fresh.rename(self.path)
        except BaseException:
            os.close(descriptor)
            raise
        self.close()
        self._descriptor, self.bytes = descriptor, written

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


@dataclass(frozen=True, slots=True)
class _Remembered:
    lines: Sequence[str]
    left_behind: Sequence[Path]


def _prefix(database: UUID) -> str:
    return f"money-{database}-"


def _remembered(directory: Path, database: UUID) -> _Remembered:
    """left_behind: files that no process holds any more."""
    paths = sorted(directory.glob(f"{_prefix(database)}*.log"), key=lambda path: path.stat().st_mtime)
    lines: list[str] = []
    left_behind: list[Path] = []
    for path in paths[-FILES_MAX:]:
        with suppress(FileNotFoundError), path.open("r+", encoding="ascii", errors="replace") as file:
            lines += file.readlines()
            with suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                left_behind.append(path)
    return _Remembered(lines, left_behind)


def _line(one: Sent | Wal) -> str:
    if isinstance(one, Sent):
        return f"sent {one.id} {one.attempt} {one.at.isoformat()}\n"
    return f"wal {one.system_identifier} {one.lsn} {one.at.isoformat()}\n"


def _read(line: str) -> Sent | Wal | None:
    """None: torn by a crash of the machine, or not ours."""
    if not line.endswith("\n"):
        return None
    try:
        kind, first, second, at = line.split()
        moment = datetime.fromisoformat(at)
        if moment.tzinfo is None:
            return None
        if kind == "sent":
            return Sent(UUID(first), int(second), moment)
        return Wal(int(first), second, moment) if kind == "wal" else None
    except ValueError:
        return None
