"""The schemas of the engine and of all installed systems, for the command line, Django and Alembic."""

from redrive.store.migrations import migrate
from redrive.system import discover


def installed_sets() -> list[migrate.MigrationSet]:
    found = discover().values()
    return [migrate.MigrationSet(one.name, one.migrations) for one in found if one.migrations is not None]


def upgrade_installed(dsn: str) -> None:
    """A new database completely, one in use by the `pre` phase, which the running version tolerates."""
    sets = installed_sets()
    is_new = migrate.check(dsn, sets=sets).state == "absent"
    migrate.upgrade(dsn, phase="all" if is_new else "pre", sets=sets)
