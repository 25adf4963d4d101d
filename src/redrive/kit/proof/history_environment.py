"""Where histories happen: servers from one prepared data directory, databases from one template, a wire that can be
cut.

`HistoryEnvironment` is prepared once; `HistoryDatabase` is of one history, restored or promoted as it says.
"""

import asyncio
import contextlib
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, LiteralString, Self

import psycopg
from psycopg import conninfo, sql
from psycopg.rows import TupleRow

from redrive.kit.proof import movable_clock
from redrive.kit.proof.database import kill_server, server_name, sets_of
from redrive.kit.proof.fork_server import ForkServer
from redrive.kit.proof.proxy import Proxy
from redrive.operate import embedded
from redrive.store.migrations import migrate
from redrive.system import System

TEMPLATE: Final = "history_template"
OPERATOR_ROLE: Final = "history_operator"
APPROVER_ROLE: Final = "history_approver"
# The server is killed, the machine is not: what it wrote is there afterwards without a flush.
SETTINGS: Final = {"fsync": "off", "max_connections": "400", "shared_buffers": "64MB", "autovacuum_naptime": "10s"}
READY_SECONDS: Final = 30.0
_LEFT_BEHIND: Final = shutil.ignore_patterns("postmaster.pid", "postmaster.opts", ".s.PGSQL*", "pg_wal")
_ROLES: Final = """
CREATE ROLE history_operator NOLOGIN IN ROLE redrive_operator, redrive_viewer, redrive_console;
CREATE ROLE history_approver NOLOGIN IN ROLE redrive_operator, redrive_viewer, redrive_console;
DO $$
BEGIN
    IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'redrive_approver') THEN
        GRANT redrive_approver TO history_approver;
    END IF;
END
$$
"""


class HistoryEnvironment:
    """directory: with a short path. module: what the fork server runs. tables: besides the engine's own."""

    def __init__(
        self, directory: Path, module: str, *, systems: Sequence[System] = (), tables: LiteralString = ""
    ) -> None:
        self.directory = directory
        self._module = module
        self._sets = sets_of(systems)
        self._tables = tables
        self._base = directory / "base"
        self._count = 0

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self._prepare)
        self.server = await asyncio.to_thread(self.new_server)
        self.processes = await ForkServer(self._module, self.directory / "said").__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.processes.__aexit__()
        await asyncio.to_thread(end_server, self.server)

    def _prepare(self) -> None:
        server = embedded.start(self._base, settings=SETTINGS)
        try:
            with psycopg.connect(server.dsn, autocommit=True) as conn:
                conn.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(TEMPLATE)))
            migrate.upgrade(server.dsn_of(TEMPLATE), sets=self._sets)
            with psycopg.connect(server.dsn_of(TEMPLATE), autocommit=True) as conn:
                conn.execute(_ROLES)
                if self._tables:
                    conn.execute(self._tables)
                conn.execute("CHECKPOINT")
            self.name = server_name(server.major)
        finally:
            server.stop()

    def new_server(self, environment: Mapping[str, str] | None = None) -> embedded.Server:
        place = self.new_directory("data")
        _copy(self._base, place)
        return embedded.start(place, settings=SETTINGS, environment=environment)

    def new_directory(self, name: str) -> Path:
        """Its name; nothing is there yet."""
        self._count += 1
        return self.directory / f"{name}{self._count}"


class HistoryDatabase:
    """wire.dsn: as relays and producers reach it. options: of every connection made here. clock: of its own server."""

    def __init__(
        self, environment: HistoryEnvironment, name: str, *, own_server: bool, options: str = "", clock: bool = False
    ) -> None:
        self._environment = environment
        self._name = name
        self._own = own_server
        self._options = options
        self._backup: Path | str | None = None
        self._old: list[embedded.Server] = []
        self._wires = contextlib.AsyncExitStack()
        self._connections: dict[str | None, psycopg.AsyncConnection[TupleRow]] = {}
        self.server = environment.server
        self.directory = environment.new_directory("history")
        self._movable = clock and own_server and movable_clock.library() is not None
        self.clock: movable_clock.MovableClock | None = None

    async def __aenter__(self) -> Self:
        self.directory.mkdir()
        if self._movable:
            self.clock = movable_clock.MovableClock(self.directory)
        if self._own:
            self.server = await asyncio.to_thread(self._environment.new_server, self._variables)
        await self._on_server("CREATE DATABASE {} TEMPLATE {}", self._name, TEMPLATE)
        self.wire = await self._open_wire()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._wires.aclose()
        await self._disconnect()
        if self._own:
            await asyncio.to_thread(end_server, self.server)
            await self.close_old()
        else:
            await self._drop(self._name)
            await self._drop(f"{self._name}_backup")
        if isinstance(self._backup, Path):
            await asyncio.to_thread(shutil.rmtree, self._backup, ignore_errors=True)

    @property
    def dsn(self) -> str:
        return self.server.dsn_of(self._name)

    async def connect(
        self, role: str | None = None, *, dsn: str | None = None, writes: bool = False
    ) -> psycopg.AsyncConnection[TupleRow]:
        """Waits for a server that is starting."""
        options = f"-c redrive.tenant=* {self._options}" + (f" -c role={role}" if role else "")
        if writes:  # also while all others may not, and however long it takes
            options += " -c default_transaction_read_only=off -c lock_timeout=0"
        there = conninfo.make_conninfo(dsn or self.dsn, options=options)
        until = time.monotonic() + READY_SECONDS
        while True:
            try:
                return await psycopg.AsyncConnection.connect(there, autocommit=True)
            except psycopg.OperationalError:
                if time.monotonic() > until:
                    raise
            await asyncio.sleep(0.02)

    async def rows(self, query: LiteralString, *values: Any, role: str | None = None, **named: Any) -> list[TupleRow]:
        """On a connection that is kept while server and database stay the same."""
        conn = self._connections.get(role)
        if conn is None or conn.closed:
            conn = self._connections[role] = await self.connect(role)
        return await (await conn.execute(query, named or values)).fetchall()

    async def _disconnect(self) -> None:
        kept, self._connections = self._connections, {}
        for conn in kept.values():
            await conn.close()

    # what happens to it

    async def stop_hard(self) -> None:
        """As by a power cut, and started again."""
        await self._disconnect()
        await asyncio.to_thread(kill_server, self.server)
        await self._start(self.server.data_dir, environment=self._variables)

    @property
    def _variables(self) -> Mapping[str, str]:
        return self.clock.environment if self.clock else {}

    async def set_read_only(self, value: bool) -> None:
        """As in a maintenance. On the shared server this holds for new connections, so those of relays and our own are
        ended; else one that was made meanwhile would refuse for good.
        """
        change = "SET default_transaction_read_only = on" if value else "RESET default_transaction_read_only"
        if self._own:
            await self._on_server("ALTER SYSTEM " + change)
            await self._on_server("SELECT pg_reload_conf()")
            return
        await self._on_server("ALTER DATABASE {} " + change, self._name)
        await self._on_server(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = {} AND application_name LIKE 'redrive%'",
            sql.Literal(self._name),
        )
        await self._disconnect()

    async def back_up(self) -> None:
        """On the shared server: a copy of the database, like a restored dump."""
        if self._own:
            self._backup = await self._physical_backup()
        else:
            self._backup = f"{self._name}_backup"
            await self._drop(self._backup)
            async with self._closed():
                await self._on_server("CREATE DATABASE {} TEMPLATE {}", self._backup, self._name)

    @property
    def has_backup(self) -> bool:
        return self._backup is not None

    async def put_back(self) -> None:
        """Same server, same timeline."""
        assert self._backup is not None
        await self._disconnect()
        if isinstance(self._backup, str):
            async with self._closed():
                await self._drop(self._name)
                await self._on_server("CREATE DATABASE {} TEMPLATE {}", self._name, self._backup)
            return
        await asyncio.to_thread(kill_server, self.server)
        await asyncio.to_thread(shutil.rmtree, self.server.data_dir)
        await asyncio.to_thread(_copy, self._backup, self.server.data_dir)
        await self._start(self.server.data_dir)

    async def promote(self) -> None:
        """Beside the old server, which goes on until `close_old`; the wire is a new one."""
        assert isinstance(self._backup, Path)
        await self._disconnect()
        place = self._environment.new_directory("standby")
        await asyncio.to_thread(_copy, self._backup, place)
        (place / "standby.signal").touch()
        self._old.append(self.server)
        await self._start(place)
        async with await self.connect() as conn:
            await conn.execute("SELECT pg_promote(true, 30)")
        self.wire = await self._open_wire()  # relays of the old server keep the one that they have

    async def close_old(self) -> None:
        while self._old:
            await asyncio.to_thread(end_server, self._old.pop())

    async def _physical_backup(self) -> Path:
        place = self._environment.new_directory("backup")
        async with await self.connect() as conn:
            await conn.execute("SELECT pg_backup_start('history', true)")
            await asyncio.to_thread(_copy, self.server.data_dir, place, wal=False)
            row = await (await conn.execute("SELECT labelfile FROM pg_backup_stop(false)")).fetchone()
            assert row is not None
            (place / "backup_label").write_text(row[0], "utf-8")
            await asyncio.to_thread(_copy_wal, self.server.data_dir, place)
        return place

    @contextlib.asynccontextmanager
    async def _closed(self) -> Any:
        """No connection to the database."""
        await self._disconnect()
        await self._on_server("ALTER DATABASE {} ALLOW_CONNECTIONS false", self._name)
        await self._on_server(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = {}",
            sql.Literal(self._name),
        )
        try:
            yield
        finally:
            await self._on_server("ALTER DATABASE {} ALLOW_CONNECTIONS true", self._name)

    async def _start(self, place: Path, **options: Any) -> None:
        self.server = await asyncio.to_thread(embedded.start, place, settings=SETTINGS, **options)

    async def _drop(self, name: str) -> None:
        await self._on_server("DROP DATABASE IF EXISTS {} WITH (FORCE)", name)

    async def _on_server(self, statement: LiteralString, *names: str | sql.Literal) -> None:
        parts = [sql.Identifier(name) if isinstance(name, str) else name for name in names]
        async with await self.connect(dsn=self.server.dsn, writes=True) as conn:
            await conn.execute(sql.SQL(statement).format(*parts))

    async def _open_wire(self) -> Proxy:
        directory = self._environment.new_directory("wire")
        directory.mkdir()
        return await self._wires.enter_async_context(Proxy(directory, self.dsn))


def end_server(server: embedded.Server) -> None:
    """At once, with its data."""
    if server.running:
        kill_server(server)
    server.close()
    shutil.rmtree(server.data_dir, ignore_errors=True)


def _copy(source: Path, target: Path, *, wal: bool = True) -> None:
    """A data directory. A file that disappears meanwhile is not needed: WAL has it."""
    with contextlib.suppress(shutil.Error):
        shutil.copytree(source, target, ignore=_LEFT_BEHIND, symlinks=True)
    target.chmod(0o700)
    if wal:
        _copy_wal(source, target)
    else:
        (target / "pg_wal").mkdir(mode=0o700, exist_ok=True)


def _copy_wal(source: Path, target: Path) -> None:
    shutil.copytree(source / "pg_wal", target / "pg_wal", dirs_exist_ok=True, symlinks=True)
    (target / "pg_wal").chmod(0o700)
