"""The connection that listens for the doorbell: one of its own, because a pooler would give it to others in between.

`ring` in verbs/doorbell.sql notifies `outbox_pending`, `PostgresStore.echo` notifies `outbox_echo` with the worker's
id.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import psycopg
from psycopg import AsyncConnection

from redrive import redact
from redrive.message import WorkerId
from redrive.ports import Heard, TransientFailure
from redrive.store.runtime.sessions import KEEPALIVE

CHANNEL: Final = "outbox_pending"
ECHO_CHANNEL: Final = "outbox_echo"
_OPTIONS: Final[Mapping[str, Any]] = {**KEEPALIVE, "application_name": "redrive listener"}


class PostgresListenConnection:
    def __init__(self, conn: AsyncConnection[Any], worker: WorkerId) -> None:
        self._conn = conn
        self._worker = str(worker)

    async def wait(self, seconds: float) -> Heard:
        rung = echoed = False
        try:
            async for said in self._conn.notifies(timeout=seconds, stop_after=1):
                rung = rung or said.channel == CHANNEL
                echoed = echoed or (said.channel == ECHO_CHANNEL and said.payload == self._worker)
        except psycopg.Error as error:
            raise TransientFailure(redact.error_type(error)) from error
        return Heard(rung, echoed)


@asynccontextmanager
async def opened(dsn: str, worker: WorkerId) -> AsyncIterator[PostgresListenConnection]:
    try:
        conn = await AsyncConnection.connect(dsn, autocommit=True, **_OPTIONS)
    except (psycopg.Error, OSError) as error:
        raise TransientFailure(redact.error_type(error)) from error
    async with conn:
        try:
            await conn.execute("LISTEN outbox_pending")
            await conn.execute("LISTEN outbox_echo")
        except psycopg.Error as error:
            raise TransientFailure(redact.error_type(error)) from error
        yield PostgresListenConnection(conn, worker)
