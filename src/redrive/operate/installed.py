"""The schema that everything installed here needs: the engine's, and that of the systems beside it.

For whoever upgrades or checks a database: the command line, `redrive.django` and `redrive.alembic`.
"""

from __future__ import annotations

from redrive.store.migrations import migrate
from redrive.system import discover


def installed_sets() -> list[migrate.MigrationSet]:
    """Those of the installed systems; the engine's own come first by themselves."""
    found = discover().values()
    return [migrate.MigrationSet(one.name, one.migrations) for one in found if one.migrations is not None]


def upgrade_installed(dsn: str) -> None:
    """On a new database everything; on one in use what the version that still runs can live with.

    So does whoever migrates before he deploys. The rest waits for `redrive db upgrade --phase post`.
    """
    sets = installed_sets()
    is_new = migrate.check(dsn, sets=sets).state == "absent"
    migrate.upgrade(dsn, phase="all" if is_new else "pre", sets=sets)
