"""Measures enqueueing and draining beside other libraries, by turns in one sitting, on one embedded PostgreSQL.

Each measurement has a database and a process of its own. Redrive's are the workloads of `redrive bench`. A run
that lost a job does not count, and ends the whole.
"""

from __future__ import annotations

import argparse
import json
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from statistics import median

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from redrive.bench import workloads
from redrive.operate import embedded

PEERS = ("procrastinate", "pgqueuer")
TITLES = {"W1": "enqueue one by one, with a business INSERT", "W2": "enqueue in bulk", "W3": "drain no-op messages"}
COUNTS = {"W1": workloads.SINGLES, "W2": workloads.DRAIN, "W3": workloads.DRAIN}
OURS: Mapping[str, tuple[Callable[[str, float], workloads.Rates], str]] = {
    "W1": (workloads.enqueue_one_by_one, "redrive.enqueue"),
    "W2": (workloads.enqueue_in_bulk, "redrive.enqueue_many"),
    "W3": (workloads.drain, "one relay"),
}


def main() -> None:
    options = parsed()
    with server() as dsn:
        for work in OURS:
            rounds = [one_round(dsn, work, options.scale) for _ in range(options.repeat)]
            print(row(work, rounds), flush=True)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench/peers/run", description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=3, help="rounds; medians are printed (default 3)")
    parser.add_argument("--scale", type=float, default=1.0, help="how much of it: 1 is 20,000 jobs (default)")
    options = parser.parse_args()
    names = " | ".join(f"{peer} {version(peer)}" for peer in PEERS)
    print(f"| | work | Redrive | {names} |\n|---|---|---|{'---|' * len(PEERS)}", flush=True)
    return options


@contextmanager
def server() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="redrive-peers-") as place:
        Path(place).chmod(0o711)  # as root the server runs as another user, who must pass
        running = embedded.start(Path(place) / "data")
        try:
            yield running.dsn
        finally:
            running.stop()


def one_round(dsn: str, work: str, scale: float) -> dict[str, float]:
    measure, name = OURS[work]
    rates = {"redrive": measure(dsn, scale)[name]}
    for peer in PEERS:
        rates[peer] = peer_rate(dsn, peer, work, max(int(COUNTS[work] * scale), 200))
    return rates


def peer_rate(server_dsn: str, peer: str, work: str, count: int) -> float:
    name = f"peer_{secrets.token_hex(4)}"
    with psycopg.connect(server_dsn, autocommit=True) as conn:
        conn.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        try:
            asked = {"dsn": make_conninfo(server_dsn, dbname=name), "work": work, "count": count}
            command = [sys.executable, "-c", f"from bench.peers import {peer}_peer; {peer}_peer.run()"]
            ended = subprocess.run(command, input=json.dumps(asked), text=True, check=True, stdout=subprocess.PIPE)
        finally:
            conn.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))
    return float(ended.stdout.splitlines()[-1])


def row(work: str, rounds: list[dict[str, float]]) -> str:
    """Medians of the rates, and of the rounds' own ratios with the lowest and the highest."""
    cells = [f"{median(one['redrive'] for one in rounds):,.0f}/s"]
    for peer in PEERS:
        ratios = sorted(one["redrive"] / one[peer] for one in rounds)
        rate = median(one[peer] for one in rounds)
        cells.append(f"{rate:,.0f}/s: {median(ratios):.1f} × ({ratios[0]:.1f}–{ratios[-1]:.1f})")
    return f"| {work} | {TITLES[work]} | " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main()
