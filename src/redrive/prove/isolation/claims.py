"""A relay claims for as many destinations as an app may have, and nothing is due."""

from __future__ import annotations

from typing import Final
from uuid import uuid4

import psycopg

from redrive.app import DESTINATIONS_MAX
from redrive.message import LEVELS
from redrive.prove.isolation.environment import CaseEnvironment, Figure, milliseconds
from redrive.store.runtime import wire

NAMES: Final = [f"declared-{number:04}" for number in range(DESTINATIONS_MAX)]
CLAIM_MS_MAX: Final = 10.0
_CLAIM = (
    "SELECT id FROM redrive.claim_1(%s, %s::text[], %s::smallint[], %s::integer[], 60, NULL, NULL, true)"
    " WHERE id IS NOT NULL"
)
_LIMITS = """
UPDATE redrive.destination d SET rate_per_second = 10, concurrency_limit = 10, money = n.n % 2 = 0
  FROM (SELECT x.name, row_number() OVER (ORDER BY x.name) AS n FROM redrive.destination x) n WHERE n.name = d.name
"""


def run(environment: CaseEnvironment) -> list[Figure]:
    """The time of one claim for as many destinations as an app may have, at all levels, with nothing due."""
    places = [(name, level, 1) for name in NAMES for level in LEVELS]
    values = [uuid4(), *wire.columns(places, 3)]
    with psycopg.connect(environment.dsn, autocommit=True, prepare_threshold=0) as conn:
        conn.execute("INSERT INTO redrive.destination (name) SELECT unnest(%s::text[])", [NAMES])
        conn.execute("ANALYZE")
        plain = milliseconds(lambda: conn.execute(_CLAIM, values).fetchall())
        conn.execute(_LIMITS.encode())
        limited = milliseconds(lambda: conn.execute(_CLAIM, values).fetchall())
        suspects = milliseconds(lambda: conn.execute("SELECT redrive.suspect_destinations_1(%s)", [NAMES]).fetchall())
    count = f"{DESTINATIONS_MAX:,} destinations"
    return [
        Figure(f"a claim for {count}", plain, "ms", bound=CLAIM_MS_MAX),
        Figure(f"the same, all limited, half money: {count}", limited, "ms", bound=CLAIM_MS_MAX),
        Figure("a look for suspects among them", suspects, "ms", bound=CLAIM_MS_MAX),
    ]
