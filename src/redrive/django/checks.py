"""What `manage.py check` says about Redrive.

    redrive.E001    the database is missing or not PostgreSQL
    redrive.E002    REDRIVE_APP names no app
    redrive.E003    the schema does not fit this version, and `manage.py migrate` would not mend it
    redrive.W001    REDRIVE_APP is not set
    redrive.W002    AUTOCOMMIT is off

The schema is looked at where Django looks at databases: `manage.py check --database default` and `manage.py migrate`.
"""

from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.core import checks
from django.db import connections
from django.db.migrations.loader import MigrationLoader

from redrive.django import database
from redrive.errors import OperatorError, RedriveError
from redrive.operate.installed import installed_sets
from redrive.relay.load_app import load_app
from redrive.store.migrations import migrate
from redrive.store.migrations.state import UPGRADE
from redrive.store.runtime.open_store import explained

MIGRATE = "manage.py redrive migrate"


def register() -> None:
    for check in (check_database, check_app, check_transactions):
        checks.register(check, "redrive")
    checks.register(check_schema, checks.Tags.database)


def check_database(**_: Any) -> list[checks.CheckMessage]:
    alias = database.alias()
    if alias not in connections.databases:
        known = ", ".join(sorted(connections.databases))
        return [_error("E001", f"REDRIVE_DATABASE is {alias!r}, which DATABASES does not have.", f"it has: {known}")]
    vendor = connections[alias].vendor
    if vendor != "postgresql":
        message = f"The database {alias!r} is {vendor}; messages live in PostgreSQL, beside your data."
        hint = "use the engine django.db.backends.postgresql, or name another alias in REDRIVE_DATABASE"
        return [_error("E001", message, hint)]
    return []


def check_app(**_: Any) -> list[checks.CheckMessage]:
    spec = getattr(settings, "REDRIVE_APP", None)
    if not spec:
        hint = 'REDRIVE_APP = "shop.outbox:app", the module and the name of your redrive.App'
        return [checks.Warning("`manage.py redrive relay` has no app to run.", hint=hint, id="redrive.W001")]
    try:
        load_app(spec)
    except RedriveError as error:
        return [_error("E002", f"REDRIVE_APP: {error}", "name the module and the redrive.App in it")]
    except Exception as error:
        return [_error("E002", f"REDRIVE_APP: {spec} cannot be imported: {error!r}.", "mend the module")]
    return []


def check_transactions(**_: Any) -> list[checks.CheckMessage]:
    if connections.databases.get(database.alias(), {}).get("AUTOCOMMIT", True):
        return []
    return [
        checks.Warning(
            "AUTOCOMMIT is off: Django commits nothing by itself, and what is enqueued outside `atomic` commits only"
            " when your code says so.",
            hint="leave AUTOCOMMIT on, and write data and message inside `with transaction.atomic():`",
            id="redrive.W002",
        )
    ]


def check_schema(*, databases: Sequence[str] | None = None, **_: Any) -> list[checks.CheckMessage]:
    """Says nothing while a migration of ours waits: Django says that, and `manage.py migrate` mends it."""
    if database.alias() not in (databases or ()) or check_database():
        return []
    try:
        return _judge(database.dsn())
    except OperatorError as error:
        return [_error("E003", error.message, error.next)]


def _judge(dsn: str) -> list[checks.CheckMessage]:
    with explained(dsn):
        checked = migrate.check(dsn, sets=installed_sets())
    if checked.state in migrate.USABLE or _is_pending():
        return []
    return [_error("E003", f"The schema is {checked.state}. {checked.detail}", checked.next.replace(UPGRADE, MIGRATE))]


def _is_pending() -> bool:
    loader = MigrationLoader(connections[database.alias()])
    return any(leaf not in loader.applied_migrations for leaf in loader.graph.leaf_nodes("redrive"))


def _error(number: str, message: str, hint: str) -> checks.CheckMessage:
    return checks.Error(message, hint=hint, id=f"redrive.{number}")
