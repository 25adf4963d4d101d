"""What a relay requires before it starts: the schema, and commits that survive a crash where money moves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from redrive.app import Destination
from redrive.errors import SettingsError
from redrive.events import Events
from redrive.ports import TransientFailure
from redrive.relay.context import UNREACHABLE_SECONDS
from redrive.store.migrations.files import MigrationSet
from redrive.store.runtime.open_store import require_schema
from redrive.store.runtime.postgres import PostgresStore

if TYPE_CHECKING:
    from redrive.relay.process import RelayProcess

Result = TypeVar("Result")


async def check_database(
    process: RelayProcess, store: PostgresStore, destinations: Mapping[str, Destination], *, events: Events
) -> None:
    """Waits for a database that is away."""
    sets = [MigrationSet(s.name, s.migrations) for s in process.app.systems.values() if s.migrations is not None]
    await _until_there(lambda: require_schema(store, sets), events)
    await _require_synchronous_commit(process, store, destinations, events=events)


async def _require_synchronous_commit(
    process: RelayProcess, store: PostgresStore, destinations: Mapping[str, Destination], *, events: Events
) -> None:
    """A crash of the database must not lose what was committed: a payment would be sent that no record remembers."""
    money = sorted(name for name, destination in destinations.items() if destination.rules.money)
    if not money:
        return
    rows = await _until_there(lambda: store.rows("SELECT current_setting('synchronous_commit')", []), events)
    if rows[0][0] != "off":
        return
    if process.allow_asynchronous_commit:
        events.emit("relay.asynchronous_commit", destinations=money)
        return
    raise SettingsError(
        f"synchronous_commit is off for this login, and {money[0]!r} moves money: a crash of the database could lose"
        " what it has committed.",
        next="ALTER ROLE … SET synchronous_commit = on for the relay's login; or set asynchronous_commit = warn, if a"
        " payment that is lost from the database is acceptable",
    )


async def _until_there(call: Callable[[], Awaitable[Result]], events: Events) -> Result:
    while True:
        try:
            return await call()
        except TransientFailure:
            events.emit("relay.unreachable", during="start", tries=0)
            await asyncio.sleep(UNREACHABLE_SECONDS)
