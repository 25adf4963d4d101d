"""Many ordering keys wait, and much is parked."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import psycopg

from redrive.operate import doctor
from redrive.prove.isolation.environment import CaseEnvironment, Figure, milliseconds
from redrive.recover.engine_duties import LANES_AT_ONCE
from redrive.store.reads.models import COUNTED_MAX, LIVE_SECONDS

LANES: Final = 250_000  # more than COUNTED_MAX: from here on nothing grows, and a million would take a minute to make
MEND_MS_MAX: Final = 100.0
GAUGES_MS_MAX: Final = 1000.0
DOCTOR_MS_MAX: Final = 2000.0
# Each an ordering key of its own, over a hundred destinations; a fifth as many unordered ones, and as many parked.
_FILL: Final = (
    "INSERT INTO redrive.lane SELECT generate_series(1, %(lanes)s)",
    """INSERT INTO redrive.pending (id, due_at, lane, sequence, level, tenant, destination)
       SELECT gen_random_uuid(), now(), n, 1, 1, 'default', 'd' || n %% 100 FROM generate_series(1, %(lanes)s) n""",
    """INSERT INTO redrive.lane_wake (destination, level, due_at, lane)
       SELECT 'd' || n %% 100, 1, now(), n FROM generate_series(1, %(lanes)s) n""",
    """INSERT INTO redrive.pending (id, due_at, level, tenant, destination)
       SELECT gen_random_uuid(), now(), 1, 'default', 'd' || n %% 100 FROM generate_series(1, %(lanes)s / 5) n""",
    """INSERT INTO redrive.parked (id, reason, parked_at, first_failed_at, last_failed_at, tenant, destination, stage,
                                   version, level, attempt, spent, lookups, crashes, error_class, exhausted, halts,
                                   context)
       SELECT gen_random_uuid(), 'dead', now(), now(), now(), 'default', 'd' || n %% 100, 'first', 1, 1, 1, 1, 0, 0,
              'HTTP_409', false, true, '{}' FROM generate_series(1, %(lanes)s / 5) n""",
)


def run(environment: CaseEnvironment) -> list[Figure]:
    """The time of one call of each."""
    with psycopg.connect(environment.dsn, autocommit=True) as conn:
        for statement in _FILL:
            conn.execute(statement.encode(), {"lanes": LANES})
        conn.execute("ANALYZE")

        def call(query: str, *values: Any) -> float:
            return milliseconds(lambda: conn.execute(query.encode(), values).fetchall(), times=5)

        mend = call("SELECT * FROM redrive.mend_lanes_1(%s)", LANES_AT_ONCE)
        gauges = call("SELECT * FROM redrive.gauges_1(%s, %s)", LIVE_SECONDS, COUNTED_MAX)
    report = milliseconds(lambda: asyncio.run(doctor.examine(environment.dsn)), times=3)
    return [
        Figure(f"mend_lanes, one call of {LANES_AT_ONCE:,} of {LANES:,} lanes", mend, "ms", bound=MEND_MS_MAX),
        Figure("gauges, as Prometheus reads them", gauges, "ms", bound=GAUGES_MS_MAX),
        Figure("redrive doctor", report, "ms", bound=DOCTOR_MS_MAX),
    ]
