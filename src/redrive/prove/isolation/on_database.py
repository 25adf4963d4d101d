"""Cases of the database: a long reader, a clock that is set, and what verbs cost where much is declared or waits."""

import asyncio
import threading
import time
from typing import Any, Final
from uuid import uuid4

import psycopg

from redrive.app import DESTINATIONS_MAX
from redrive.kit.proof import movable_clock
from redrive.message import LEVELS
from redrive.operate import doctor
from redrive.prove.isolation.environment import NEIGHBOUR, CaseEnvironment, Figure, milliseconds
from redrive.recover.engine_duties import LANES_AT_ONCE
from redrive.store.reads.models import COUNTED_MAX, LIVE_SECONDS
from redrive.store.runtime import wire

BESIDE_SECONDS: Final = 5.0
MAKE: Final = "SELECT redrive.make_partitions_1(7 * 86400, 6)"
CLAIM: Final = "SELECT count(*) FROM redrive.claim_1(%s, '{neighbour}', '{1}', '{1}', 60)"
HOUR: Final = 3600.0
DUE: Final = 100  # messages, when the clock is set
LEASE_SECONDS: Final = 2.0
SENDING_SECONDS: Final = 3 * LEASE_SECONDS
BOUND_SECONDS: Final = LEASE_SECONDS + 3.0  # a lease, and what a busy machine takes to look again
REAPED: Final = """SELECT 1 FROM redrive.duty d WHERE d.name = 'reap'
                    AND d.finished_at BETWEEN %s + interval '1 second' AND clock_timestamp()"""
NAMES: Final = [f"declared-{number:04}" for number in range(DESTINATIONS_MAX)]
CLAIM_MS_MAX: Final = 10.0
_CLAIM_ALL = (
    "SELECT id FROM redrive.claim_1(%s, %s::text[], %s::smallint[], %s::integer[], 60, NULL, NULL, true)"
    " WHERE id IS NOT NULL"
)
_LIMITS = """
UPDATE redrive.destination d SET rate_per_second = 10, concurrency_limit = 10, money = n.n % 2 = 0
  FROM (SELECT x.name, row_number() OVER (ORDER BY x.name) AS n FROM redrive.destination x) n WHERE n.name = d.name
"""
LANES: Final = 250_000  # more than COUNTED_MAX: from here on nothing grows, and a million would take a minute to make
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


def partitions(environment: CaseEnvironment) -> list[Figure]:
    """A partition is made while a long transaction reads the tables.

    The slowest claim in a quiet run and beside it, and whether the partitions are there after the reader.
    """
    environment.value("SELECT count(redrive.enqueue_1('neighbour', '{}')) FROM generate_series(1, 5000)")
    quiet = _slowest_claim_ms(environment.dsn, BESIDE_SECONDS / 2)
    over = threading.Event()
    tries: list[bool] = []
    with psycopg.connect(environment.dsn) as reader:
        reader.execute("SELECT count(*) FROM redrive.message")
        making = threading.Thread(target=_make, args=[environment.dsn, over, tries])
        making.start()
        beside = _slowest_claim_ms(environment.dsn, BESIDE_SECONDS)
        over.set()
        making.join()
        reader.rollback()
    return [
        Figure("slowest claim in a quiet run", quiet, "ms"),
        Figure("slowest claim beside the reader", beside, "ms", bound=500.0),
        Figure("tries beside the reader that gave up", tries.count(False)),
        Figure("partitions still missing after the reader", 2 - environment.value(MAKE), bound=0),
    ]


def _make(dsn: str, over: threading.Event, tries: list[bool]) -> None:
    """As the duty does, and more often."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        while not over.is_set():
            try:
                conn.execute(MAKE)
                tries.append(True)
            except psycopg.errors.LockNotAvailable:
                tries.append(False)
            over.wait(0.1)


def _slowest_claim_ms(dsn: str, seconds: float) -> float:
    slowest, worker, end = 0.0, uuid4(), time.monotonic() + seconds
    with psycopg.connect(dsn, autocommit=True) as conn:
        while time.monotonic() < end:
            began = time.monotonic()
            conn.execute(CLAIM, [worker])
            slowest = max(slowest, time.monotonic() - began)
            time.sleep(0.005)
    return slowest * 1000


def clock(environment: CaseEnvironment) -> list[Figure]:
    """The database's clock is set back by three hours, then forward by six.

    How long what was due waits, how long duties rest, and what goes out twice; on a server of its own.
    """
    if movable_clock.library() is None:
        return [Figure(f"NOT MEASURED: {movable_clock.MISSING}", 0)]
    with (
        movable_clock.open_movable(environment.directory) as (dsn, movable),
        CaseEnvironment(environment.directory, dsn) as here,
    ):
        here.start_relay(limits={"lease_seconds": LEASE_SECONDS})
        return [
            *_jump(here, movable, "back", -3 * HOUR),
            *_jump(here, movable, "forward", 3 * HOUR),
            Figure("messages sent twice", here.sent_twice(), bound=0),
            Figure(
                "jumps that were not noticed, or twice",
                abs(2 - here.value("SELECT count(*) FROM redrive.clock_jump")),
                bound=0,
            ),
        ]


def _jump(environment: CaseEnvironment, movable: movable_clock.MovableClock, name: str, offset: float) -> list[Figure]:
    """One message is being sent, others are due and wait in a paused destination; then the clock is set."""
    waiting = [f"{name}/{number}" for number in range(DUE)]
    environment.send("slow", [f"{name}/sending"], {"seconds": SENDING_SECONDS})
    environment.wait_begun([f"{name}/sending"])
    environment.value("SELECT redrive.pause_1('neighbour', 'proof', 'proof')")
    environment.send(NEIGHBOUR, waiting)
    movable.set_off(offset)
    began = time.monotonic()
    since = environment.value("SELECT clock_timestamp()")
    environment.value("SELECT redrive.resume_1('neighbour', 'proof', 'proof')")
    environment.wait_begun(waiting)
    waited = time.monotonic() - began
    environment.wait(lambda: environment.value(REAPED, since), seconds=2 * BOUND_SECONDS)
    rested = time.monotonic() - began
    environment.wait(lambda: environment.value("SELECT count(*) FROM redrive.lease") == 0, seconds=2 * SENDING_SECONDS)
    return [
        Figure(f"set {name}: all that was due was sent after", waited, "s", bound=BOUND_SECONDS),
        Figure(f"set {name}: the reaper ran again after", rested, "s", bound=BOUND_SECONDS),
    ]


def claims(environment: CaseEnvironment) -> list[Figure]:
    """A relay claims for as many destinations as an app may have, and nothing is due.

    The time of one claim for them at all levels.
    """
    places = [(name, level, 1) for name in NAMES for level in LEVELS]
    values = [uuid4(), *wire.columns(places, 3)]
    with psycopg.connect(environment.dsn, autocommit=True, prepare_threshold=0) as conn:
        conn.execute("INSERT INTO redrive.destination (name) SELECT unnest(%s::text[])", [NAMES])
        conn.execute("ANALYZE")
        plain = _call_ms(conn, _CLAIM_ALL, *values)
        conn.execute(_LIMITS.encode())
        limited = _call_ms(conn, _CLAIM_ALL, *values)
        suspects = _call_ms(conn, "SELECT redrive.suspect_destinations_1(%s)", NAMES)
    count = f"{DESTINATIONS_MAX:,} destinations"
    return [
        Figure(f"a claim for {count}", plain, "ms", bound=CLAIM_MS_MAX),
        Figure(f"the same, all limited, half money: {count}", limited, "ms", bound=CLAIM_MS_MAX),
        Figure("a look for suspects among them", suspects, "ms", bound=CLAIM_MS_MAX),
    ]


def upkeep(environment: CaseEnvironment) -> list[Figure]:
    """Many ordering keys wait, and much is parked.

    The time of one call of each.
    """
    with psycopg.connect(environment.dsn, autocommit=True) as conn:
        for statement in _FILL:
            conn.execute(statement.encode(), {"lanes": LANES})
        conn.execute("ANALYZE")
        mend = _call_ms(conn, "SELECT * FROM redrive.mend_lanes_1(%s)", LANES_AT_ONCE, times=5)
        gauges = _call_ms(conn, "SELECT * FROM redrive.gauges_1(%s, %s)", LIVE_SECONDS, COUNTED_MAX, times=5)
    report = milliseconds(lambda: asyncio.run(doctor.examine(environment.dsn)), times=3)
    return [
        Figure(f"mend_lanes, one call of {LANES_AT_ONCE:,} of {LANES:,} lanes", mend, "ms", bound=100.0),
        Figure("gauges, as Prometheus reads them", gauges, "ms", bound=1000.0),
        Figure("redrive doctor", report, "ms", bound=2000.0),
    ]


def _call_ms(conn: psycopg.Connection[Any], query: str, *values: Any, times: int = 20) -> float:
    return milliseconds(lambda: conn.execute(query.encode(), values).fetchall(), times=times)
