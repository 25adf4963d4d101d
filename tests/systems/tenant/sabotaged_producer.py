"""A producer of the proof whose writer breaks promises: `redrive prove tenant` must say so."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import psycopg

from redrive.systems.tenant import Added, Event, OutboxWriter
from redrive.systems.tenant.prove import producer
from redrive.systems.tenant.prove.app import TYPES


class Careless(OutboxWriter):
    """It forgets the order, gives one event of two a new key each time, and adds the others outside the transaction."""

    def add(self, conn: Any, tenant: str, event: Event, *, key: UUID | str | None = None) -> Added:
        unordered = replace(event, order_by=None)
        if key is not None or event.order_by is not None:
            return super().add(conn, tenant, unordered, key=key)
        if int(event.parts["entity"].rpartition("-")[2]) % 2:
            return super().add(conn, tenant, unordered, key=uuid4())
        with psycopg.connect(os.environ["REDRIVE_DSN"]) as other:
            return super().add(other, tenant, unordered)


if __name__ == "__main__":
    producer.main(Careless(event_types=TYPES))
