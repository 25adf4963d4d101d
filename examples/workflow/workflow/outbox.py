"""The outbox of the application, and the subscriber that keeps a ledger of what it was told."""

import json

import psycopg

import redrive
from redrive.systems import tenant
from workflow.database import DSN
from workflow.event_types import TYPES

outbox = tenant.Outbox(TYPES, options=tenant.OutboxOptions(poll_interval_seconds=1, base_retry_delay_seconds=1))


@outbox.deliver
async def tell_the_subscriber(event: redrive.Attempt) -> None:
    """An event may come twice after a crash, always with the same token: the ledger takes the first."""
    entry = [event.token, event.tenant, event.kind, event.key, json.dumps(event.payload)]
    async with await psycopg.AsyncConnection.connect(DSN) as conn:
        await conn.execute(
            "INSERT INTO subscriber_ledger (token, tenant, event_type, key, payload) VALUES (%s, %s, %s, %s, %s)"
            " ON CONFLICT (token) DO NOTHING",
            entry,
        )


app = redrive.App()
app.include(outbox.system())
