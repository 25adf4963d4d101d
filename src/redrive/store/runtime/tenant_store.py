"""The store as one principal sees it: one tenant, in one role of the database.

Each transaction takes the role and names the tenant, and both end with it, so a pooled session keeps nothing. Reads
obey row-level security (verbs/zz_grants.sql); a verb acts by the id that it is given, so its caller looks first.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, LiteralString, NoReturn

from psycopg import AsyncConnection
from psycopg.rows import namedtuple_row

from redrive.errors import NotAllowed
from redrive.store.runtime.postgres import PostgresStore

ALL_TENANTS: Final = "*"


class TenantStore(PostgresStore):
    """Shares the connections of `store`, which closes them."""

    def __init__(self, store: PostgresStore, *, role: str, tenant: str) -> None:
        if not tenant:
            raise NotAllowed("No tenant is named.")
        self._store = store
        self._timeout_seconds = store._timeout_seconds
        self.local_settings = {"role": role, "redrive.tenant": tenant}

    @property
    def tenant(self) -> str:
        return self.local_settings["redrive.tenant"]

    async def __aexit__(self, *_: object) -> None: ...

    def connection(self, statement: str = "") -> NoReturn:  # noqa: ARG002 - the signature of what it refuses
        raise NotAllowed("This needs the whole database, and not what one reader may see.")

    def reading(self) -> AbstractAsyncContextManager[AsyncConnection[Any]]:
        return self._store.connection()

    async def rows(self, query: LiteralString, values: Sequence[Any] | Mapping[str, Any]) -> list[Any]:
        async with self._limited(query) as conn, conn.cursor(binary=True, row_factory=namedtuple_row) as cursor:
            await cursor.execute(query, values)
            return await cursor.fetchall()

    @asynccontextmanager
    async def _limited(self, statement: str) -> AsyncIterator[AsyncConnection[Any]]:
        async with self._store.connection(statement) as conn, conn.transaction():
            await set_locally(conn, self.local_settings)
            yield conn


async def set_locally(conn: AsyncConnection[Any], settings: Mapping[str, str]) -> None:
    """Until the transaction ends. The role comes last: after SET ROLE the rest may not be set."""
    ordered = sorted(settings.items(), key=lambda item: item[0] == "role")
    names, values = [name for name, _ in ordered], [value for _, value in ordered]
    await conn.execute(
        "SELECT set_config(s.name, s.value, true) FROM unnest(%s::text[], %s::text[]) AS s (name, value)",
        [names, values],
    )
