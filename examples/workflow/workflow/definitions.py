"""Definitions: a version is published or unpublished, with its event in the same transaction.

A retry of a request that had committed finds the rows as it wants them, changes nothing, and adds the same event again:
its key is known, so that the first one is given back.
"""

import psycopg

from redrive.systems.tenant import Added
from workflow import publish
from workflow.database import Refused

# Nothing is changed, and no change is counted, where it is published already.
_PUBLISH = """
INSERT INTO workflow_definition AS d (tenant, name, version) VALUES (%s, %s, %s)
ON CONFLICT (tenant, name, version)
DO UPDATE SET published = true, changes = d.changes + CASE WHEN d.published THEN 0 ELSE 1 END
RETURNING changes
"""
_UNPUBLISH = """
UPDATE workflow_definition SET published = false, changes = changes + CASE WHEN published THEN 1 ELSE 0 END
 WHERE tenant = %s AND name = %s AND version = %s
RETURNING changes
"""


def publish_definition(conn: psycopg.Connection, tenant: str, name: str, version: int) -> Added:
    """The row is locked until the commit, so of two publishers at once the second finds it published."""
    with conn.transaction():
        (change,) = conn.execute(_PUBLISH, [tenant, name, version]).fetchone()
        return publish.definition_published(conn, tenant, name, version, change)


def unpublish_definition(conn: psycopg.Connection, tenant: str, name: str, version: int) -> Added:
    with conn.transaction():
        row = conn.execute(_UNPUBLISH, [tenant, name, version]).fetchone()
        if row is None:
            raise Refused(f"{tenant} has no version {version} of the definition {name}.")
        return publish.definition_unpublished(conn, tenant, name, version, row[0])
