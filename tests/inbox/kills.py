"""`redrive worker` killed while it consumes: each event once, in the order of its key."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg

KEYS, EVENTS, KILLS = 8, 800, 5
STALLED_SECONDS = 120.0  # without one event more


def event(n: int) -> tuple[str, dict[str, str], bytes]:
    """Its key, its attributes, its data."""
    key = f"k{n % KEYS}"
    return (
        key,
        {"specversion": "1.0", "id": str(n), "source": "/shop", "type": "placed", "subject": key},
        b'{"n": %d}' % n,
    )


async def consume_through_kills(app: str, database: str, directory: Path, *, environment: Mapping[str, str]) -> None:
    """app: source of a module whose handler writes key and n of each event into the table effect."""
    (directory / "shop_consumer.py").write_text(app, encoding="utf-8")
    environment = {**os.environ, **environment, "PYTHONPATH": str(directory), "REDRIVE_DSN": database}
    command = [sys.executable, "-m", "redrive", "worker", "shop_consumer:app", "--log-level", "error"]
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("CREATE TABLE effect (number bigserial, key text, n int)")

        def count() -> int:
            row = conn.execute("SELECT count(*) FROM effect").fetchone()
            assert row is not None
            return int(row[0])

        for kill in range(KILLS + 1):
            worker = subprocess.Popen(command, env=environment)  # noqa: ASYNC220 - it starts at once
            wanted = EVENTS if kill == KILLS else (kill + 1) * EVENTS // (KILLS + 2)
            try:
                await until(count, wanted, worker)
            except BaseException:
                worker.kill()
                worker.wait()
                raise
            worker.send_signal(signal.SIGTERM if kill == KILLS else signal.SIGKILL)
            assert worker.wait(60) == (0 if kill == KILLS else -signal.SIGKILL)
        check_effects(conn)


async def until(count: Callable[[], int], wanted: int, worker: subprocess.Popen[bytes]) -> None:
    found, deadline = count(), time.monotonic() + STALLED_SECONDS
    while found < wanted:
        assert worker.poll() is None
        assert time.monotonic() < deadline + starved_seconds(worker.pid), f"{found} of {wanted}"
        await asyncio.sleep(0.002)
        before, found = found, count()
        if found > before:
            deadline = time.monotonic() + STALLED_SECONDS


def starved_seconds(pid: int) -> float:
    """For how long a process was ready to run and had no processor, since it began; 0 where the system does not say."""
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    return 0.0


def check_effects(conn: psycopg.Connection[Any]) -> None:
    """Each event once, in the order of its key."""
    rows = conn.execute("SELECT key, n FROM effect ORDER BY number").fetchall()
    inbox = conn.execute("SELECT outcome, count(*) FROM redrive.inbox GROUP BY 1").fetchall()
    assert sorted(n for _, n in rows) == list(range(EVENTS))
    for key in {key for key, _ in rows}:
        own = [n for one, n in rows if one == key]
        assert own == sorted(own), key
    assert inbox == [("processed", EVENTS)]
