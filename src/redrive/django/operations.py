"""The migration operation: brings the schema `redrive` to what the installed version expects. Forward only.

On a connection of its own, because the migrator's files have their own transactions and locks.
"""

from typing import Any

from django.db import router
from django.db.migrations.exceptions import IrreversibleError
from django.db.migrations.operations.base import Operation

from redrive.django import database
from redrive.operate.installed import installed_sets, upgrade_installed
from redrive.store.migrations import migrate


class Upgrade(Operation):
    """version, fingerprint: of the Redrive that the migration was added for.

    Whichever migration runs, it brings everything that the installed version has: those that follow find nothing to do.
    """

    reversible = True  # else Django's sentence would stand in for the one of `database_backwards`

    def __init__(self, *, version: str, fingerprint: str) -> None:
        self.version = version
        self.fingerprint = fingerprint

    def state_forwards(self, *_: Any) -> None: ...

    def database_forwards(self, app_label: str, schema_editor: Any, *_: Any) -> None:
        if not _is_ours(schema_editor.connection, app_label):
            return
        if schema_editor.collect_sql:
            schema_editor.collected_sql.append(migrate.sql(sets=installed_sets()))
        else:
            upgrade_installed(database.dsn())

    def database_backwards(self, app_label: str, schema_editor: Any, *_: Any) -> None:
        if _is_ours(schema_editor.connection, app_label):
            raise IrreversibleError(
                "The schema redrive is not taken away again: it holds messages that were promised to be sent, and the"
                " record of those that were. To be rid of it: DROP SCHEMA redrive CASCADE, then"
                " `manage.py migrate --fake redrive zero`."
            )

    def describe(self) -> str:
        return f"Bring the schema redrive to version {self.version}"


def _is_ours(connection: Any, app_label: str) -> bool:
    return bool(connection.alias == database.alias() and router.allow_migrate(connection.alias, app_label))
