"""What only `redrive doctor` reads: settings of the server, rights of the login, whether notifications arrive."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from redrive.message import WorkerId
from redrive.ports import TransientFailure
from redrive.store.reads import models
from redrive.store.reads.transaction import read
from redrive.store.runtime import listen_connection
from redrive.store.runtime.postgres import PostgresStore

HEARD_SECONDS: Final = 2.0
BY_DEFAULT_MAX: Final = 100_000
OLDEST: Final = 3000  # open messages of each kind that are looked at; old partitions are dropped first


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """idle_slots: replication slots without a reader."""

    at: datetime
    version: int
    version_text: str
    login: str
    is_superuser: bool
    is_standby: bool
    has_autovacuum: bool
    commits_synchronously: bool
    roles: Sequence[str]
    sees_sessions: bool
    idle_slots: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Upkeep:
    """partition_end: up to when messages have a partition. differing: live relays disagree about their rules.

    by_default: rows in the default partitions, counted up to BY_DEFAULT_MAX. unwitnessed: live relays that move money
    and do not remember it over restarts. gone: how many of the oldest open messages have no row any more.
    """

    partition_end: datetime | None
    differing: Sequence[str]
    money: bool
    unwitnessed: Sequence[str]
    by_default: int = 0
    gone: int = 0


async def server(store: PostgresStore) -> Server:
    return Server(**(await read(store, "server"))[0])


async def system_roles(store: PostgresStore) -> dict[str, bool]:
    """The roles of the systems in use, and whether the login is a member of each."""
    return {row["role"]: row["is_member"] for row in await read(store, "system_roles")}


async def upkeep(store: PostgresStore) -> Upkeep:
    bounds = {"by_default_max": BY_DEFAULT_MAX, "oldest": OLDEST}
    return Upkeep(**(await read(store, "upkeep", live_seconds=models.LIVE_SECONDS, **bounds))[0])


async def hears(store: PostgresStore, dsn: str, worker: WorkerId) -> bool:
    """Whether a notification of the store's connection arrives on a listening one."""
    try:
        async with listen_connection.opened(dsn, worker) as listening:
            await store.echo(worker)
            async with asyncio.timeout(HEARD_SECONDS):
                while not (await listening.wait(HEARD_SECONDS)).echoed:
                    pass
            return True
    except (TransientFailure, TimeoutError):
        return False


async def is_pooled(store: PostgresStore) -> bool:
    async with store.connection() as conn:
        row = await (await conn.execute("SELECT pg_backend_pid()")).fetchone()
        return row is not None and row[0] != conn.info.backend_pid
