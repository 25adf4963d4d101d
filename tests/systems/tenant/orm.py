"""What the tests of the models share: event types of invoices, and queries beside the ORM."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import psycopg

from redrive.systems.tenant import EventTypes, Version

TYPES = EventTypes()
TYPES.declare("InvoiceIssued", category="invoice", by=Version())
TYPES.declare("InvoiceViewed", category="invoice", keyed=False)


def rows(dsn: str, query: str, *values: Any) -> list[tuple[Any, ...]]:
    """Of one query, in a transaction of its own."""
    with psycopg.connect(dsn) as conn:
        return conn.execute(query.encode(), values).fetchall()


def events_of(dsn: str, tenant: str) -> list[UUID]:
    return [id for (id,) in rows(dsn, "SELECT id FROM redrive.message WHERE tenant = %s ORDER BY id", tenant)]


def a_tenant() -> str:
    """One that no other test has."""
    return f"t-{uuid4().hex[:12]}"
