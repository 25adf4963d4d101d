"""The migrations of the systems that are installed here, for whoever upgrades or checks a database."""

from __future__ import annotations

from redrive.store.migrate import MigrationSet
from redrive.system import discover


def installed_sets() -> list[MigrationSet]:
    """Those of the installed systems; the engine's own come first by themselves."""
    return [MigrationSet(one.name, one.migrations) for one in discover().values() if one.migrations is not None]
