"""One function for each event: what it says, and what its key is made of. Called in the transaction of the rows.

Each takes an `idempotency_key` of the caller's instead of the one that it would make.
"""

from datetime import datetime
from uuid import UUID

import psycopg

from redrive.systems.tenant import Added, Event
from workflow.outbox import outbox

Key = UUID | None


def definition_published(
    conn: psycopg.Connection, tenant: str, name: str, version: int, change: int, *, idempotency_key: Key = None
) -> Added:
    parts = {"entity": name, "version": f"{version}.{change}"}
    return _add(conn, tenant, "DefinitionPublished", parts, idempotency_key, name=name, version=version)


def definition_unpublished(
    conn: psycopg.Connection, tenant: str, name: str, version: int, change: int, *, idempotency_key: Key = None
) -> Added:
    parts = {"entity": name, "version": f"{version}.{change}"}
    return _add(conn, tenant, "DefinitionUnpublished", parts, idempotency_key, name=name, version=version)


def instance_started(
    conn: psycopg.Connection, tenant: str, id: UUID, name: str, version: int, *, idempotency_key: Key = None
) -> Added:
    return _of_instance(conn, tenant, "InstanceStarted", id, idempotency_key, definition=name, version=version)


def instance_completed(conn: psycopg.Connection, tenant: str, id: UUID, *, idempotency_key: Key = None) -> Added:
    return _of_instance(conn, tenant, "InstanceCompleted", id, idempotency_key)


def instance_failed(
    conn: psycopg.Connection, tenant: str, id: UUID, reason: str, *, idempotency_key: Key = None
) -> Added:
    return _of_instance(conn, tenant, "InstanceFailed", id, idempotency_key, reason=reason)


def instance_force_cancelled(
    conn: psycopg.Connection, tenant: str, id: UUID, request: str, by: str, *, idempotency_key: Key = None
) -> Added:
    """request: the id of the request, which its repetition has too."""
    parts = {"entity": id, "correlation": request}
    return _add(conn, tenant, "InstanceForceCancelled", parts, idempotency_key, order_by=id, instance=str(id), by=by)


def gateway_decided(
    conn: psycopg.Connection,
    tenant: str,
    id: UUID,
    gateway: str,
    branch: str,
    at: datetime,
    *,
    idempotency_key: Key = None,
) -> Added:
    parts = {"entity": f"{id}/{gateway}", "at": at}
    said = {"instance": str(id), "gateway": gateway, "branch": branch}
    return _add(conn, tenant, "GatewayDecided", parts, idempotency_key, order_by=id, **said)


def task_created(
    conn: psycopg.Connection, tenant: str, task: UUID, id: UUID, name: str, *, idempotency_key: Key = None
) -> Added:
    said = {"task": str(task), "instance": str(id), "name": name}
    return _add(conn, tenant, "TaskCreated", {"entity": task}, idempotency_key, order_by=id, **said)


def task_claimed(
    conn: psycopg.Connection, tenant: str, task: UUID, id: UUID, revision: int, by: str, *, idempotency_key: Key = None
) -> Added:
    """A task that was given back is claimed again: its revision tells the claims apart."""
    parts = {"entity": task, "revision": revision}
    return _add(conn, tenant, "TaskClaimed", parts, idempotency_key, order_by=id, task=str(task), by=by)


def task_completed(
    conn: psycopg.Connection, tenant: str, task: UUID, id: UUID, *, idempotency_key: Key = None
) -> Added:
    return _add(conn, tenant, "TaskCompleted", {"entity": task}, idempotency_key, order_by=id, task=str(task))


def task_cancelled(
    conn: psycopg.Connection, tenant: str, task: UUID, id: UUID, *, idempotency_key: Key = None
) -> Added:
    return _add(conn, tenant, "TaskCancelled", {"entity": task}, idempotency_key, order_by=id, task=str(task))


def _of_instance(conn: psycopg.Connection, tenant: str, event_type: str, id: UUID, key: Key, **said: object) -> Added:
    return _add(conn, tenant, event_type, {"entity": id}, key, order_by=id, instance=str(id), **said)


def _add(
    conn: psycopg.Connection,
    tenant: str,
    event_type: str,
    parts: dict[str, object],
    key: Key,
    *,
    order_by: UUID | None = None,
    **said: object,
) -> Added:
    """Events of one instance, those of its gateways and tasks included, reach the subscriber in order."""
    order = None if order_by is None else f"instance:{order_by}"
    return outbox.writer.add(conn, tenant, Event(event_type, said, parts=parts, order_by=order), key=key)
