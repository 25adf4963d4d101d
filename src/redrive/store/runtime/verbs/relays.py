"""Relays in PostgreSQL: registration, heartbeat, and what they remember of money that they sent."""

import json
from collections.abc import Sequence
from uuid import UUID

import psycopg

from redrive.message import WorkerId
from redrive.ports import (
    DestinationState,
    Now,
    RelayInfo,
    RelayVerbs,
    RestoredDestination,
    Sent,
    Wal,
    Witnessed,
    address_refused,
)
from redrive.store.runtime import wire
from redrive.store.runtime.listen_connection import ECHO_CHANNEL
from redrive.store.runtime.verbs import from_port
from redrive.store.runtime.verbs.connected import Connected
from redrive.who import require_actor_and_reason

ADDRESS_REFUSED = "RDA01"  # SQLSTATE of check_addresses in relay.sql


class PostgresRelays(Connected):
    """`redrive.ports.RelayVerbs`, and the verbs of epochs."""

    async def register(self, relay: RelayInfo, *, now: Now = None) -> None:
        values = (
            relay.worker,
            relay.name,
            relay.host,
            relay.pid,
            relay.version,
            json.dumps([wire.declared(relay, name) for name in relay.destinations]),
            json.dumps(dict(relay.policies)),
            relay.suspects_only,
            now,
        )
        try:
            await self.value("register_1", *values)
        except psycopg.Error as error:
            if error.sqlstate != ADDRESS_REFUSED:
                raise
            raise address_refused(error.diag.message_primary or "", error.diag.message_detail or "") from None

    heartbeat = from_port.rows(RelayVerbs.heartbeat, DestinationState)
    deregister = from_port.value(RelayVerbs.deregister)
    announce_idle = from_port.value(RelayVerbs.announce_idle)

    async def echo(self, worker: WorkerId) -> None:
        await self.rows("SELECT pg_notify(%s, %s)", [ECHO_CHANNEL, str(worker)])

    forget_relays = from_port.value(RelayVerbs.forget_relays)

    async def declare_restored(
        self, *, actor: str, reason: str, dry_run: bool = False, now: Now = None
    ) -> Sequence[RestoredDestination]:
        """This database was restored, copied or promoted: pause what moves money, and put what waits there in doubt."""
        require_actor_and_reason(actor, reason)
        return wire.objects(RestoredDestination, await self.call("declare_restored_1", actor, reason, dry_run, now))

    async def database_id(self) -> UUID:
        """The same in every copy and backup."""
        id: UUID = await self.value("database_id_1")
        return id

    async def witness(
        self, worker: WorkerId, *, kept: str, remembers: bool, sent: Sequence[Sent], wal: Wal | None, now: Now = None
    ) -> Witnessed:
        """Whether the database knows what a relay remembers; if not, an epoch begins."""
        seen = wal or (None, None, None)
        (row,) = await self.call("witness_1", worker, kept, remembers, *wire.columns(sent, 3), *seen, now)
        return Witnessed(row.restored, row.unknown, Wal(row.system_identifier, row.wal_lsn, row.at), row.closed)
