"""Producers that enqueue one by one: `python -m redrive.bench.produce`, its settings as JSON on standard input.

Each connection in its own thread. It says "ready" once all are connected, begins when told to, and prints the
moments of its first and last transaction.
"""

import json
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg

import redrive


def produce(settings: Mapping[str, Any]) -> dict[str, float]:
    connections = [psycopg.connect(settings["dsn"]) for _ in range(settings["connections"])]
    print("ready", flush=True)
    sys.stdin.readline()
    began = time.monotonic()
    with ThreadPoolExecutor(len(connections)) as threads:
        list(threads.map(lambda conn: _enqueue(conn, settings["each"]), connections))
    return {"began": began, "ended": time.monotonic()}


def _enqueue(conn: psycopg.Connection[tuple[Any, ...]], count: int) -> None:
    for _ in range(count):
        redrive.enqueue(conn, "ours", {"text": "x" * 289})
        conn.commit()


if __name__ == "__main__":
    print(json.dumps(produce(json.loads(sys.stdin.readline()))))
