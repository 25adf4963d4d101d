"""A bounded set of connections to one database.

A connection is made on demand, so that the first call after an outage succeeds as soon as the server is back (a pool
that reconnects with a growing delay can sleep longer than a lease). After a lost connection all idle ones are dropped.

A statement goes to the session that ran it most often, because the first run plans all that its verb does and takes ten
times as long. A new one goes where least was run.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import AsyncConnection
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus

from redrive.errors import SettingsError
from redrive.store.runtime import decoding

CONNECT_SECONDS = 5
# A peer that vanished is noticed within about 20 s, well inside the default lease.
KEEPALIVE: Mapping[str, Any] = {
    "keepalives_idle": 10,
    "keepalives_interval": 3,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
    "connect_timeout": CONNECT_SECONDS,
}
_REFUSED_OPTIONS = "unsupported startup parameter"  # PgBouncer's words


@dataclass(eq=False)
class _Session:
    conn: AsyncConnection[Any]
    runs: Counter[str] = field(default_factory=Counter)


class Sessions:
    """At most `limit` connections."""

    def __init__(self, dsn: str, *, limit: int, application_name: str) -> None:
        self._dsn = dsn
        given = conninfo_to_dict(dsn).get("options") or ""
        self._options = {**KEEPALIVE, "application_name": application_name}
        self._session_settings = f"{given} -c timezone=UTC -c default_transaction_isolation=read\\ committed".strip()
        self._places = asyncio.Semaphore(limit)
        self._idle: list[_Session] = []
        self._closed = False
        self.made = 0  # connections, so far

    @asynccontextmanager
    async def session(self, statement: str) -> AsyncIterator[AsyncConnection[Any]]:
        """statement: what will be run, in any words that are the same every time."""
        async with self._places:
            session = self._take_idle(statement) or _Session(await self._connect())
            session.runs[statement] += 1
            try:
                yield session.conn
            except psycopg.OperationalError:
                await self._drop_idle()
                raise
            except psycopg.errors.ReadOnlySqlTransaction:
                # Another server may be the one that writes by now, or this session began read-only for good.
                await _close(session.conn)
                await self._drop_idle()
                raise
            finally:
                await self._give_back(session)

    def _take_idle(self, statement: str) -> _Session | None:
        if not self._idle:
            return None
        best = max(self._idle, key=lambda session: (session.runs[statement], -session.runs.total()))
        self._idle.remove(best)
        return best

    async def close(self) -> None:
        self._closed = True
        await self._drop_idle()

    async def _connect(self) -> AsyncConnection[Any]:
        try:
            conn = await self._connect_with(options=self._session_settings)
        except psycopg.OperationalError as error:
            if _REFUSED_OPTIONS not in str(error):
                raise
            conn = await self._connect_with()
        try:
            await _prepare_nothing_behind_a_pooler(conn)
        except BaseException:
            await _close(conn)
            raise
        self.made += 1
        return conn

    async def _connect_with(self, **more: Any) -> AsyncConnection[Any]:
        conn = await AsyncConnection.connect(self._dsn, autocommit=True, **self._options, **more)
        decoding.register(conn)
        return conn

    async def _give_back(self, session: _Session) -> None:
        conn = session.conn
        if self._closed or conn.closed or conn.info.transaction_status is not TransactionStatus.IDLE:
            await _close(conn)
        else:
            self._idle.append(session)

    async def _drop_idle(self) -> None:
        while self._idle:
            await _close(self._idle.pop().conn)


async def _prepare_nothing_behind_a_pooler(conn: AsyncConnection[Any]) -> None:
    cursor = await conn.execute("SELECT pg_backend_pid(), current_setting('default_transaction_isolation')")
    row = await cursor.fetchone()
    assert row is not None
    pid, isolation = row
    if pid == conn.info.backend_pid:
        return
    conn.prepare_threshold = None
    if isolation != "read committed":
        raise SettingsError(
            f"Behind a pooler the isolation level cannot be chosen by session, and the default here is {isolation}.",
            next="ALTER ROLE … SET default_transaction_isolation = 'read committed' for this login",
        )


async def _close(conn: AsyncConnection[Any]) -> None:
    with suppress(psycopg.Error):
        await conn.close()
