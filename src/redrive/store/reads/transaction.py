"""The read transaction: one read-only snapshot for all statements of a read, each bounded in time.

A statement is called by the name of its file, `sql/reads/<name>.sql`.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from functools import cache
from importlib import resources
from typing import Any, Final

from psycopg import AsyncConnection, IsolationLevel
from psycopg.rows import dict_row

from redrive.errors import InvalidValue, NotAllowed
from redrive.store.reads import models
from redrive.store.runtime.postgres import PostgresStore
from redrive.store.runtime.tenant_store import set_locally

Row = dict[str, Any]


_BY_INDEX: Final = (
    "SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),"
    " set_config('enable_sort', 'off', true)"
)


class ReadTransaction:
    def __init__(self, conn: AsyncConnection[Any]) -> None:
        self._conn = conn

    async def __call__(self, name: str, /, **values: Any) -> list[Row]:
        return await self.run(statement(name), values)

    async def by_index(self) -> None:
        """From here on read in the order of an index.

        The newest of a million rows are at the end of their index. A planner that sorts all of them is right about the
        cost of one page, and wrong about that of every page.
        """
        async with self._conn.cursor() as cursor:
            await cursor.execute(_BY_INDEX)

    async def run(self, text: bytes, values: Mapping[str, Any]) -> list[Row]:
        async with self._conn.cursor(binary=True, row_factory=dict_row) as cursor:
            await cursor.execute(text, values)
            return await cursor.fetchall()


@asynccontextmanager
async def snapshot(store: PostgresStore) -> AsyncIterator[ReadTransaction]:
    async with store.reading() as conn:
        await conn.set_isolation_level(IsolationLevel.REPEATABLE_READ)
        await conn.set_read_only(True)
        try:
            async with conn.transaction():
                milliseconds = f"{models.READ_SECONDS_MAX * 1000:.0f}"
                # jit: compiling one takes longer than any of ours runs, and planners think of it when one is costly.
                settings = {"statement_timeout": milliseconds, "jit": "off"}
                await set_locally(conn, {**settings, **store.local_settings})
                yield ReadTransaction(conn)
        finally:
            if not conn.closed:
                await conn.set_isolation_level(None)
                await conn.set_read_only(None)


async def read(store: PostgresStore, statement: str, /, **values: Any) -> list[Row]:
    """One statement in a snapshot of its own."""
    async with snapshot(store) as ask:
        return await ask(statement, **values)


@asynccontextmanager
async def message_snapshot(store: PostgresStore) -> AsyncIterator[ReadTransaction]:
    """NotAllowed where row-level security shows this login no message: it would be told that nothing waits."""
    async with snapshot(store) as ask:
        if "redrive.tenant" not in store.local_settings:  # else a reader's role and a tenant were chosen for it
            await _require_sight(ask)
        yield ask


async def _require_sight(ask: ReadTransaction) -> None:
    (may,) = await ask("may_see")
    if not may["sees"]:
        raise NotAllowed(
            "This login may not see any message: " + (NO_POLICY if may["has_tenant"] else NO_TENANT) + ".",
            next=ROLE_ADVICE if may["has_tenant"] else TENANT_ADVICE,
        )


NO_TENANT: Final = "it may see one tenant at a time and has chosen none"
TENANT_ADVICE: Final = (
    "ALTER ROLE … SET redrive.tenant = 'NAME' (or '*'), or options='-c redrive.tenant=NAME' in the DSN"
)
NO_POLICY: Final = "no policy of row-level security is for it"
ROLE_ADVICE: Final = "use a login that has the role redrive_viewer, or that of the role which ran `redrive db upgrade`"


@cache
def statement(name: str) -> bytes:
    return (resources.files("redrive.store") / "sql" / "reads" / f"{name}.sql").read_bytes()


def check_limit(limit: int) -> None:
    if not 1 <= limit <= models.LIMIT_MAX:
        raise InvalidValue(f"limit is {limit}; it must be 1 to {models.LIMIT_MAX}.")


async def moment_of(ask: ReadTransaction) -> datetime:
    moment: datetime = (await ask("moment"))[0]["at"]
    return moment
