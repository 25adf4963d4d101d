"""A partition is made while a long transaction reads the tables."""

from __future__ import annotations

import threading
import time
from uuid import uuid4

import psycopg

from redrive.prove.isolation.environment import CaseEnvironment, Figure

BESIDE_SECONDS = 5.0
MESSAGES = 5000
MAKE = "SELECT redrive.make_partitions_1(7 * 86400, 6)"
CLAIM = "SELECT count(*) FROM redrive.claim_1(%s, '{neighbour}', '{1}', '{1}', 60)"


def run(environment: CaseEnvironment) -> list[Figure]:
    """The slowest claim in a quiet run and beside it, and whether the partitions are there after the reader."""
    with psycopg.connect(environment.dsn, autocommit=True) as conn:
        conn.execute("SELECT redrive.enqueue_1('neighbour', '{}') FROM generate_series(1, %s)", [MESSAGES])
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
    with psycopg.connect(environment.dsn, autocommit=True) as conn:
        row = conn.execute(MAKE).fetchone()
    made = row[0] if row else 0
    return [
        Figure("slowest claim in a quiet run", quiet, "ms"),
        Figure("slowest claim beside the reader", beside, "ms", bound=500.0),
        Figure("tries beside the reader that gave up", tries.count(False), ""),
        Figure("partitions still missing after the reader", 2 - made, "", bound=0),
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
