"""A producer process: domain rows and events in one transaction, rolled back and repeated as its plan says.

    python -m redrive.systems.tenant.prove.producer LOG   with its steps as JSON on standard input

The intent is on disk before BEGIN and the acknowledgement after COMMIT. One that is started again after a kill repeats
the step whose outcome it does not know, as an application that retries would.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import psycopg

from redrive.errors import RedriveError
from redrive.kit.proof import journal
from redrive.systems import tenant
from redrive.systems.tenant.prove.app import EVENT_TYPE, TYPES

TABLES: Final = """
CREATE SCHEMA redrive_prove;
CREATE TABLE redrive_prove.domain (number bigserial PRIMARY KEY, tenant text NOT NULL, name text NOT NULL);
"""
RECONNECT_SECONDS: Final = 0.2
WRITER: Final = tenant.OutboxWriter(event_types=TYPES)
_INSERT: Final = """
INSERT INTO redrive_tenant."OutboxMessages" ("TenantId", "EventType", "Payload", "IdempotencyKey")
VALUES (%s, %s, %s, %s) RETURNING "Id"
"""


class Producer:
    """steps: as `plan.Step.printed`. pause_seconds: between two steps. writer: tests break promises with others."""

    def __init__(
        self, log: Path, *, steps: list[dict[str, Any]], pause_seconds: float, writer: tenant.OutboxWriter = WRITER
    ) -> None:
        self._steps, self._pause_seconds, self._writer = steps, pause_seconds, writer
        self._done = sum(line["log"] in ("ack", "rolled_back") for line in journal.read(log))
        self._log = journal.Journal(log)

    def run(self, dsn: str) -> None:
        """A lost connection is made again, and the step under way is repeated."""
        while self._done < len(self._steps):
            with suppress(psycopg.OperationalError), psycopg.connect(dsn) as conn:
                while self._done < len(self._steps):
                    self._step(conn, self._steps[self._done])
                    self._done += 1
                    time.sleep(self._pause_seconds)
            time.sleep(RECONNECT_SECONDS if self._done < len(self._steps) else 0.0)
        self._log.write(log="finished")

    def _step(self, conn: psycopg.Connection[Any], step: Mapping[str, Any]) -> None:
        event = step["event"]
        said = {
            "tenant": event["tenant"],
            "name": f"{event['entity']}/{event['version']}",
            "order_by": event["order_by"],
        }
        self._log.write(log="intent", **said)
        conn.execute("INSERT INTO redrive_prove.domain (tenant, name) VALUES (%s, %s)", [said["tenant"], said["name"]])
        id, key = self._added(conn, step["verb"], event, said)
        if step["commits"]:
            conn.commit()
            self._log.write(log="ack", at=time.monotonic(), id=str(id), key=str(key), **said)
        else:
            conn.rollback()
            self._log.write(log="rolled_back", **said)

    def _added(
        self, conn: psycopg.Connection[Any], verb: str, event: Mapping[str, Any], said: Mapping[str, Any]
    ) -> tuple[UUID, UUID]:
        parts = {"entity": event["entity"], "version": event["version"]}
        payload = {"tenant": said["tenant"], "name": said["name"], "order_by": said["order_by"], **event}
        one = tenant.Event(EVENT_TYPE, payload, parts=parts, order_by=said["order_by"])
        if verb == "add" or said["order_by"] is not None:  # the view "OutboxMessages" has no column for an order
            added = self._writer.add(conn, said["tenant"], one)
            return added.id, added.key
        key = self._writer.event_types.key(said["tenant"], EVENT_TYPE, parts)
        if verb == "try_add":
            return self._writer.try_add(conn, said["tenant"], key, lambda: one).id, key
        row = conn.execute(_INSERT, [said["tenant"], EVENT_TYPE, json.dumps(payload), key]).fetchone()
        assert row is not None
        return row[0], key


def main(writer: tenant.OutboxWriter = WRITER) -> None:
    settings = json.loads(sys.stdin.read())
    try:
        Producer(Path(sys.argv[1]), **settings, writer=writer).run(os.environ["REDRIVE_DSN"])
    except RedriveError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
