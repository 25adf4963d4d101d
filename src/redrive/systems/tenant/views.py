"""What the console shows of the tenant outbox: each event with where it is."""

from __future__ import annotations

from importlib.resources import files
from typing import Final

from redrive.system import View, headings

VIEWS: Final = {
    "events": View(
        title="Events",
        lead="Domain events of all outboxes, newest first. Open one for its attempts and what can be done with it.",
        sql=files("redrive.systems.tenant") / "sql" / "reads" / "events_view.sql",
        columns=headings(
            "event_type state tenant_id retry_count outbox idempotency_key created_at", retry_count="Failed attempts"
        ),
        position="id",
        state="state",
        message="id",
        search="Event type or tenant",
        nothing="An event is here as soon as the transaction that added it commits.",
    ),
}
