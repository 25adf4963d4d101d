"""What the console shows of the tenant outbox: each event with where it is."""

from __future__ import annotations

from importlib.resources import files
from typing import Final

from redrive.system import View

VIEWS: Final = {
    "events": View(
        title="Events",
        lead="Domain events of all outboxes, newest first. Open one for its attempts and what can be done with it.",
        sql=files("redrive.systems.tenant") / "sql" / "reads" / "events_view.sql",
        columns={
            "event_type": "Event type",
            "state": "State",
            "tenant_id": "Tenant",
            "retry_count": "Failed attempts",
            "outbox": "Outbox",
            "idempotency_key": "Idempotency key",
            "created_at": "Created",
        },
        position="id",
        state="state",
        message="id",
        search="Event type or tenant",
        nothing="An event is here as soon as the transaction that added it commits.",
    ),
}
