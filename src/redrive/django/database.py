"""Which of Django's databases holds the messages, and its DSN."""

from typing import Any

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, connections

from redrive.store.runtime.dsn import dsn_from


def alias() -> str:
    name: str = getattr(settings, "REDRIVE_DATABASE", DEFAULT_DB_ALIAS)
    return name


def dsn() -> str:
    """Where Django itself would connect now: in a test run that is the test database."""
    connection = connections[alias()]
    role = connection.settings_dict["OPTIONS"].get("assume_role")
    return dsn_from(_as_role(connection.get_connection_params(), role))


def _as_role(parts: dict[str, Any], role: str | None) -> dict[str, Any]:
    """Django takes on a role by a statement; others do it while they connect."""
    if role is None:
        return parts
    escaped = role.replace("\\", "\\\\").replace(" ", "\\ ")
    return {**parts, "options": f"{parts.get('options') or ''} -c role={escaped}".strip()}
