"""A bounded set of connections to one database.

A connection is made when it is asked for, so that the first call after an outage succeeds as soon as the server is back
(a pool that reconnects in the background with a growing delay can sleep longer than a lease). It is handed out again
only if it is idle; after a lost connection all that lie idle are dropped: they were lost too. Used by `PostgresStore`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import psycopg
from psycopg import AsyncConnection
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus

from redrive.errors import SettingsError

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


class Sessions:
    """At most `limit` connections. `session()` waits for a free place, and connects if none lies idle."""

    def __init__(self, dsn: str, *, limit: int, application_name: str) -> None:
        self._dsn = dsn
        given = conninfo_to_dict(dsn).get("options") or ""
        self._options = {**KEEPALIVE, "application_name": application_name}
        self._session_settings = f"{given} -c timezone=UTC -c default_transaction_isolation=read\\ committed".strip()
        self._places = asyncio.Semaphore(limit)
        self._idle: list[AsyncConnection[Any]] = []
        self._closed = False

    @asynccontextmanager
    async def session(self) -> AsyncIterator[AsyncConnection[Any]]:
        async with self._places:
            conn = self._idle.pop() if self._idle else await self._connect()
            try:
                yield conn
            except psycopg.OperationalError:
                await self._drop_idle()
                raise
            finally:
                await self._give_back(conn)

    async def close(self) -> None:
        self._closed = True
        await self._drop_idle()

    async def _connect(self) -> AsyncConnection[Any]:
        """Behind a pooler nothing is kept in a session: it may be another one in the next transaction."""
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
        return conn

    async def _connect_with(self, **more: Any) -> AsyncConnection[Any]:
        return await AsyncConnection.connect(self._dsn, autocommit=True, **self._options, **more)

    async def _give_back(self, conn: AsyncConnection[Any]) -> None:
        if self._closed or conn.closed or conn.info.transaction_status is not TransactionStatus.IDLE:
            await _close(conn)
        else:
            self._idle.append(conn)

    async def _drop_idle(self) -> None:
        while self._idle:
            await _close(self._idle.pop())


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
