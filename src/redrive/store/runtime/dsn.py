"""A DSN from the connection parameters of another library (`redrive.django`, `redrive.alembic`).

Parts that libpq does not know, such as cursor classes and pools, are left out.
"""

from collections.abc import Mapping
from typing import Any

from psycopg.conninfo import make_conninfo
from psycopg.pq import Conninfo


def dsn_from(parts: Mapping[str, Any]) -> str:
    known = {option.keyword.decode() for option in Conninfo.get_defaults()}
    return make_conninfo("", **{name: value for name, value in parts.items() if name in known and value is not None})
