"""A DSN from what another library keeps of its connections.

Of the parts only those count that PostgreSQL's client library knows; cursor classes, pools and the like belong to the
other library. Called by `redrive.django` and `redrive.alembic`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from psycopg.conninfo import make_conninfo
from psycopg.pq import Conninfo


def dsn_from(parts: Mapping[str, Any]) -> str:
    known = {option.keyword.decode() for option in Conninfo.get_defaults()}
    return make_conninfo("", **{name: value for name, value in parts.items() if name in known and value is not None})
