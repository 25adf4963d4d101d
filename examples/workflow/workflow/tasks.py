"""Tasks of people: created, claimed, given back, completed or cancelled, with the event in the same transaction."""

from uuid import UUID

import psycopg

from redrive.systems.tenant import Added
from workflow import publish
from workflow.database import Refused

_CREATE = "INSERT INTO workflow_task (tenant, id, instance, name) VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING"
_OF = "SELECT instance, status, assignee, revision FROM workflow_task WHERE tenant = %s AND id = %s FOR UPDATE"
_CHANGE = """
UPDATE workflow_task SET status = %s, assignee = %s, revision = revision + 1 WHERE tenant = %s AND id = %s
RETURNING revision
"""


def create_task(conn: psycopg.Connection, tenant: str, task: UUID, instance: UUID, name: str) -> Added:
    with conn.transaction():
        conn.execute(_CREATE, [tenant, task, instance, name])
        return publish.task_created(conn, tenant, task, instance, name)


def claim_task(conn: psycopg.Connection, tenant: str, task: UUID, by: str) -> Added:
    with conn.transaction():
        instance, status, assignee, revision = _of(conn, tenant, task)
        if (status, assignee) != ("claimed", by):
            _require(status == "open", task, status, "claimed")
            (revision,) = conn.execute(_CHANGE, ["claimed", by, tenant, task]).fetchone()
        return publish.task_claimed(conn, tenant, task, instance, revision, by)


def give_back_task(conn: psycopg.Connection, tenant: str, task: UUID) -> None:
    """There is no event of this: the next claim is one."""
    with conn.transaction():
        _, status, _, _ = _of(conn, tenant, task)
        _require(status in ("open", "claimed"), task, status, "open")
        conn.execute(_CHANGE, ["open", None, tenant, task])


def complete_task(conn: psycopg.Connection, tenant: str, task: UUID) -> Added:
    with conn.transaction():
        instance, status, assignee, _ = _of(conn, tenant, task)
        _require(status in ("claimed", "completed"), task, status, "completed")
        conn.execute(_CHANGE, ["completed", assignee, tenant, task])
        return publish.task_completed(conn, tenant, task, instance)


def cancel_task(conn: psycopg.Connection, tenant: str, task: UUID) -> Added:
    with conn.transaction():
        instance, status, assignee, _ = _of(conn, tenant, task)
        _require(status != "completed", task, status, "cancelled")
        conn.execute(_CHANGE, ["cancelled", assignee, tenant, task])
        return publish.task_cancelled(conn, tenant, task, instance)


def _of(conn: psycopg.Connection, tenant: str, task: UUID) -> tuple:
    row = conn.execute(_OF, [tenant, task]).fetchone()
    if row is None:
        raise Refused(f"{tenant} has no task {task}.")
    return row


def _require(allowed: bool, task: UUID, status: str, wanted: str) -> None:
    if not allowed:
        raise Refused(f"The task {task} is {status}; it cannot become {wanted}.")
