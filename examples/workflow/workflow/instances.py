"""Instances and their gateways: from the start to how each ends, with the event in the same transaction.

The caller names an instance by an id of its own making, so that the retry of a start is the same instance.
"""

from datetime import datetime
from uuid import UUID

import psycopg

from redrive.systems.tenant import Added
from workflow import publish
from workflow.database import Refused

_START = """
INSERT INTO workflow_instance (tenant, id, definition, version)
SELECT tenant, %s, name, version FROM workflow_definition
 WHERE tenant = %s AND name = %s AND version = %s AND published
ON CONFLICT (tenant, id) DO NOTHING
"""
_OF = "SELECT definition, version, status FROM workflow_instance WHERE tenant = %s AND id = %s FOR UPDATE"


def start_instance(conn: psycopg.Connection, tenant: str, id: UUID, name: str, version: int) -> Added:
    with conn.transaction():
        conn.execute(_START, [id, tenant, name, version])
        row = conn.execute(_OF, [tenant, id]).fetchone()
        if row is None or row[:2] != (name, version):
            raise Refused(
                f"{tenant} cannot start {id}: version {version} of {name} is not published, or the id is used."
            )
        return publish.instance_started(conn, tenant, id, name, version)


def complete_instance(conn: psycopg.Connection, tenant: str, id: UUID) -> Added:
    with conn.transaction():
        _end(conn, tenant, id, "completed")
        return publish.instance_completed(conn, tenant, id)


def fail_instance(conn: psycopg.Connection, tenant: str, id: UUID, reason: str) -> Added:
    with conn.transaction():
        _end(conn, tenant, id, "failed")
        return publish.instance_failed(conn, tenant, id, reason)


def force_cancel_instance(conn: psycopg.Connection, tenant: str, id: UUID, *, request: str, by: str) -> list[Added]:
    """The instance and what is open of its tasks: one event each, all in one transaction."""
    with conn.transaction():
        _end(conn, tenant, id, "cancelled")
        tasks = conn.execute(
            "UPDATE workflow_task SET status = 'cancelled' WHERE tenant = %s AND instance = %s"
            " AND status IN ('open', 'claimed') RETURNING id",
            [tenant, id],
        ).fetchall()
        cancelled = publish.instance_force_cancelled(conn, tenant, id, request, by)
        return [cancelled, *(publish.task_cancelled(conn, tenant, task, id) for (task,) in sorted(tasks))]


def decide_gateway(conn: psycopg.Connection, tenant: str, id: UUID, gateway: str, branch: str, at: datetime) -> Added:
    """at: when the engine evaluated it. Evaluated again within the same minute, it is the same decision."""
    with conn.transaction():
        _running(conn, tenant, id)
        added = publish.gateway_decided(conn, tenant, id, gateway, branch, at)
        if not added.already_existed:
            conn.execute(
                "INSERT INTO workflow_gateway_decision VALUES (%s, %s, %s, %s, %s)", [tenant, id, gateway, branch, at]
            )
        return added


def _end(conn: psycopg.Connection, tenant: str, id: UUID, status: str) -> None:
    """A retry finds it ended so."""
    row = conn.execute(_OF, [tenant, id]).fetchone()
    if row is None or row[2] not in ("running", status):
        raise Refused(f"The instance {id} of {tenant} is {row[2] if row else 'unknown'}; it cannot become {status}.")
    conn.execute("UPDATE workflow_instance SET status = %s WHERE tenant = %s AND id = %s", [status, tenant, id])


def _running(conn: psycopg.Connection, tenant: str, id: UUID) -> None:
    row = conn.execute(_OF, [tenant, id]).fetchone()
    if row is None or row[2] != "running":
        raise Refused(f"The instance {id} of {tenant} is {row[2] if row else 'unknown'}; it has to be running.")
