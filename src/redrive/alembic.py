"""For projects that migrate with Alembic: our schema as one of your revisions, and out of the way of autogenerate.

    import redrive.alembic

    def upgrade() -> None:
        redrive.alembic.upgrade(op)

    def downgrade() -> None:
        pass    # the schema redrive stays: it holds what was promised to be sent

Our own migrator brings it, on a connection of its own. In offline mode (`--sql`) the script is printed instead. A later
version of Redrive with other SQL needs one more such revision; relays and `redrive doctor` say so.
"""

from collections.abc import Mapping
from typing import Any, Final

from redrive.operate.installed import installed_sets, upgrade_installed
from redrive.store.migrations import migrate
from redrive.store.runtime.dsn import dsn_from

SCHEMA: Final = "redrive"
# What the script has set for the transaction that Alembic goes on with.
_GIVEN_BACK: Final = "".join(
    f"SET LOCAL {name} TO DEFAULT;\n" for name in ("search_path", "client_min_messages", "lock_timeout")
)


def upgrade(op: Any, *, above: int = 0) -> None:
    """op: `alembic.op`. above: in offline mode, leave out the engine's numbered files up to this number."""
    context = op.get_context()
    if context.as_sql:
        context.impl.static_output(_script(above, is_in_transaction=context.impl.transactional_ddl))
    else:
        upgrade_installed(_dsn_of(op.get_bind()))


def include_name(name: str | None, type_: str, parent_names: Mapping[str, str | None]) -> bool:
    """For `context.configure(include_schemas=True, include_name=…)`: our schemas are not even looked at."""
    return not _is_ours(name if type_ == "schema" else parent_names.get("schema_name"))


def include_object(object: Any, *_: Any) -> bool:  # noqa: A002 - Alembic's name
    """For `context.configure(include_object=…)`: nothing of our schemas is compared with your models."""
    return not _is_ours(getattr(getattr(object, "table", object), "schema", None))


def _is_ours(schema: str | None) -> bool:
    return schema is not None and (schema == SCHEMA or schema.startswith(f"{SCHEMA}_"))


def _script(above: int, *, is_in_transaction: bool) -> str:
    numbers = {migrate.engine_set().name: above}
    script = migrate.sql(sets=installed_sets(), above=numbers, transactions=not is_in_transaction)
    return script + _GIVEN_BACK if is_in_transaction else script


def _dsn_of(connection: Any) -> str:
    info: Any = getattr(connection.connection.driver_connection, "info", None)
    if hasattr(info, "get_parameters"):  # psycopg
        return dsn_from({**info.get_parameters(), "password": info.password or None})
    if hasattr(info, "dsn_parameters"):  # psycopg2
        return dsn_from({**info.dsn_parameters, "password": info.password or None})
    url = connection.engine.url
    return dsn_from({**url.query, **url.translate_connect_args(username="user", database="dbname")})
