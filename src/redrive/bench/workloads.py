"""The workloads, each a function that measures once and returns named rates; `run.py` takes medians."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, LiteralString

import psycopg

import redrive
from redrive.bench import ceiling
from redrive.bench.database import (
    PAYLOAD,
    checkpoint,
    execute,
    fill,
    fill_blocked,
    fill_finished,
    fill_lanes,
    fresh_database,
    one_row,
)

DRAIN = 20_000
BEHIND = 500_000
PAUSED_BEHIND = 100_000
DESTINATIONS = 20
SLOW_RATE = 5.0  # so few that they do not count
TURN = 50  # transactions of one kind before the next kind has its turn
SINGLES = 1500
ORDERED = 10_000
KEYS = 1000
BLOCKED_BEHIND = 100_000
LONG_DRAIN = 300_000
LATENCY_MESSAGES = 1000
PRODUCER_PROCESSES = 4
PRODUCERS_EACH = 8
LATENCY_P50_MS = 1.5
LATENCY_P99_MS = 5.0
DRAIN_SECONDS_MAX = 300
OUTBOX: LiteralString = "CREATE TABLE outbox (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body bytea)"

Rates = Mapping[str, float]


class LostOrDoubled(AssertionError):
    """The figure of such a run does not count."""


@dataclass(frozen=True)
class Workload:
    """figure / reference is the ratio that counts; aim: what it should reach, or stay under if it is milliseconds."""

    name: str
    title: str
    figure: str
    reference: str
    aim: float
    measure: Callable[[str, float], Rates]
    unit: str = "/s"
    require: Callable[[], None] = lambda: None  # raises what it lacks here

    def shown(self, value: float) -> str:
        return f"{value:,.0f}/s" if self.unit == "/s" else f"{value:.2f} {self.unit}"


def enqueue_one_by_one(server: str, scale: float) -> Rates:
    """W1: a business INSERT and an enqueue in one transaction, against a second plain INSERT; by turns."""
    turns = max(int(SINGLES * scale) // TURN, 4)
    with fresh_database(server, "bench_w1") as dsn, psycopg.connect(dsn) as conn:
        execute(dsn, "CREATE TABLE business (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, text text)")
        execute(dsn, OUTBOX)
        checkpoint(dsn)
        second: dict[str, Callable[[], object]] = {
            "two plain INSERTs": lambda: conn.execute("INSERT INTO outbox (body) VALUES (%s)", [PAYLOAD]),
            "redrive.enqueue": lambda: redrive.enqueue(conn, "bench", {"text": "x" * 289}),
            "redrive.enqueue with a key": _keyed(conn),
        }
        seconds = dict.fromkeys(second, 0.0)
        for _ in range(turns):
            for name, act in second.items():
                seconds[name] += _transactions(conn, TURN, act)
    return {name: turns * TURN / took for name, took in seconds.items()}


def _keyed(conn: psycopg.Connection[tuple[object, ...]]) -> Callable[[], object]:
    numbers = iter(range(10_000_000))
    return lambda: redrive.enqueue(conn, "bench", {"text": "x" * 289}, key=f"order:{next(numbers)}")


def _transactions(conn: psycopg.Connection[tuple[object, ...]], count: int, second: Callable[[], object]) -> float:
    began = time.perf_counter()
    for _ in range(count):
        conn.execute("INSERT INTO business (text) VALUES (%s)", ["x" * 50])
        second()
        conn.commit()
    return time.perf_counter() - began


def enqueue_in_bulk(server: str, scale: float) -> Rates:
    """W2: 20,000 messages by enqueue_many, against one INSERT of as many rows by unnest."""
    count = max(int(DRAIN * scale), 1000)
    with fresh_database(server, "bench_w2") as dsn, psycopg.connect(dsn) as conn:
        execute(dsn, OUTBOX)
        checkpoint(dsn)
        plain = _in_chunks(
            conn, count, lambda n: conn.execute("INSERT INTO outbox (body) SELECT unnest(%s::bytea[])", [[PAYLOAD] * n])
        )
        ours = _in_chunks(conn, count, lambda n: redrive.enqueue_many(conn, _messages(n)))
    return {"plain INSERT": plain, "redrive.enqueue_many": ours}


def _messages(count: int) -> list[redrive.NewMessage]:
    return [redrive.NewMessage("bench", {"text": "x" * 289}) for _ in range(count)]


def _in_chunks(conn: psycopg.Connection[tuple[object, ...]], count: int, insert: Callable[[int], object]) -> float:
    began = time.perf_counter()
    for _ in range(0, count, 1000):
        insert(1000)
        conn.commit()
    return count / (time.perf_counter() - began)


def drain(server: str, scale: float) -> Rates:
    """W3: drain no-op messages with one relay process, against the same SQL with no client."""
    count = max(int(DRAIN * scale), 1000)
    with fresh_database(server, "bench_w3") as dsn:
        fill(dsn, "raw", count)
        fill(dsn, "ours", count)
        checkpoint(dsn)
        raw = ceiling.drain_rate(dsn, "raw", count)
        ours = relay_rate(dsn, ["ours"], count)
        require_all_delivered(dsn, 2 * count)
    return {"SQL without a client": raw, "one relay": ours}


def drain_beside_history(server: str, scale: float) -> Rates:
    """W5: 5,000 messages with 500,000 finished ones behind, against empty tables."""
    count, behind = max(int(5000 * scale), 1000), int(BEHIND * scale)
    empty = _alone_rate(server, "bench_w5_empty", count)
    with fresh_database(server, "bench_w5") as dsn:
        fill_finished(dsn, behind)
        fill(dsn, "ours", count)
        checkpoint(dsn)
        full = relay_rate(dsn, ["ours"], count)
        require_all_delivered(dsn, behind + count)
    return {"empty tables": empty, "behind history": full}


def _alone_rate(server: str, name: str, count: int) -> float:
    """One destination in empty tables."""
    with fresh_database(server, name) as dsn:
        fill(dsn, "ours", count)
        checkpoint(dsn)
        return relay_rate(dsn, ["ours"], count)


def drain_beside_others(server: str, scale: float) -> Rates:
    """W10: 20 destinations: one paused, one down, one that asks for a rest, each with 100,000 behind it, one with a
    `record`, one with a rate; the rate of the others."""
    count, behind = max(int(DRAIN * scale), 1000), int(PAUSED_BEHIND * scale)
    alone = _alone_rate(server, "bench_w10_alone", count)
    names = [f"d{number:02}" for number in range(DESTINATIONS)]
    paused, recorded, limited, down, resting, *others = names
    with fresh_database(server, "bench_w10") as dsn:
        execute(dsn, "CREATE TABLE bench_record (id uuid)")
        for name in (paused, down, resting):
            fill(dsn, name, behind)
        execute(dsn, f"SELECT redrive.pause_1('{paused}', 'bench', 'left standing')")
        for name in (recorded, limited):
            fill(dsn, name, max(count // 20, 50))
        for name in others:
            fill(dsn, name, count // len(others))
        checkpoint(dsn)
        odd = {"records": [recorded], "rates": {limited: SLOW_RATE}, "down": [down], "resting": [resting]}
        beside = relay_rate(dsn, names, len(others) * (count // len(others)), **odd)
    return {"one destination": alone, "beside others": beside}


def drain_in_order(server: str, scale: float) -> Rates:
    """W6: 10,000 messages over 1,000 ordering keys, against the same SQL with no client."""
    count = max(int(ORDERED * scale), 1000)
    with fresh_database(server, "bench_w6") as dsn:
        fill_lanes(dsn, "raw", count, keys=KEYS)
        checkpoint(dsn)
        raw = ceiling.drain_lanes_rate(dsn, "raw", count)
        ours = _ordered_rate(dsn, count)
        require_all_delivered(dsn, 2 * count)
    return {"SQL without a client": raw, "one relay": ours}


def drain_beside_blocked_key(server: str, scale: float) -> Rates:
    """W7: the same beside one blocked key with 100,000 behind it, against W6; a second after the relay's start."""
    count, behind = max(int(ORDERED * scale), 1000), int(BLOCKED_BEHIND * scale)
    with fresh_database(server, "bench_w7_alone") as dsn:
        alone = _ordered_rate(dsn, count)
    with fresh_database(server, "bench_w7") as dsn:
        fill_blocked(dsn, "ours", behind)
        beside = _ordered_rate(dsn, count)
    return {"no key blocked": alone, "one key blocked": beside}


def _ordered_rate(dsn: str, count: int) -> float:
    """From the first claim to the last settle, with a relay that was there before."""
    checkpoint(dsn)
    with _relay(dsn, ["ours"], count) as relay:
        time.sleep(1)
        fill_lanes(dsn, "ours", count, keys=KEYS)
        seen = report_of(relay)
    return float(count / (seen["ended"] - seen["claimed"]))


def drain_beside_old_transaction(server: str, scale: float) -> Rates:
    """W8: another session holds a transaction open for the whole run; the last sixth against the first."""
    count = max(int(LONG_DRAIN * scale), 6000)
    edge = count // 6
    with fresh_database(server, "bench_w8") as dsn:
        fill(dsn, "ours", count)
        checkpoint(dsn)
        with psycopg.connect(dsn) as holder:
            holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            holder.execute("SELECT count(*) FROM redrive.destination")
            with _relay(dsn, ["ours"], count, edge=edge) as relay:
                seen = report_of(relay)
        require_all_delivered(dsn, count)
    return {
        "first 50,000": edge / (seen["first_edge"] - seen["claimed"]),
        "last 50,000": edge / (seen["ended"] - seen["last_edge"]),
    }


def wake_up(server: str, scale: float) -> Rates:
    """W4: from the commit of a producer at 100 a second to the start of the handler; beside it, from when the
    commit was asked for: with the flush."""
    count = max(int(LATENCY_MESSAGES * scale), 100)
    with fresh_database(server, "bench_w4") as dsn, _relay(dsn, ["ours"], count, note=True) as relay:
        time.sleep(1)
        asked, committed = _one_every(dsn, count, seconds=0.01)
        handled = report_of(relay)["handled"]
    p50, p99 = _percentiles_ms(committed, handled)
    p50_asked, p99_asked = _percentiles_ms(asked, handled)
    return {
        "p50": p50,
        "p99": p99,
        "p50 with the flush": p50_asked,
        "p99 with the flush": p99_asked,
        "p50 allowed": LATENCY_P50_MS,
        "p99 allowed": LATENCY_P99_MS,
    }


def _percentiles_ms(began: Mapping[str, float], ended: Mapping[str, float]) -> tuple[float, float]:
    waits = sorted(1000 * (ended[text] - at) for text, at in began.items())
    return waits[len(waits) // 2], waits[int(len(waits) * 0.99)]


def _one_every(dsn: str, count: int, *, seconds: float) -> tuple[dict[str, float], dict[str, float]]:
    """When each commit was asked for, and when it was done."""
    asked: dict[str, float] = {}
    committed: dict[str, float] = {}
    with psycopg.connect(dsn) as conn:
        start = time.monotonic()
        for number in range(count):
            time.sleep(max(start + number * seconds - time.monotonic(), 0))
            redrive.enqueue(conn, "ours", {"text": str(number)})
            asked[str(number)] = time.monotonic()
            conn.commit()
            committed[str(number)] = time.monotonic()
    return asked, committed


def enqueue_beside_relay(server: str, scale: float) -> Rates:
    """W9: 32 connections enqueue while a relay drains and is woken by them, against one that only polls."""
    return {
        "wake-up off": _producers_rate(server, scale, listen=False),
        "wake-up on": _producers_rate(server, scale, listen=True),
    }


def _producers_rate(server: str, scale: float, *, listen: bool) -> float:
    each = max(int(SINGLES * scale) // PRODUCERS_EACH, 5)
    count = each * PRODUCER_PROCESSES * PRODUCERS_EACH
    with ExitStack() as stack:
        dsn = stack.enter_context(fresh_database(server, "bench_w9"))
        settings = json.dumps({"dsn": dsn, "connections": PRODUCERS_EACH, "each": each})
        relay = stack.enter_context(_relay(dsn, ["ours"], count, listen=listen))
        producers = [stack.enter_context(child("redrive.bench.produce", settings)) for _ in range(PRODUCER_PROCESSES)]
        for producer in producers:
            assert producer.stdin is not None
            producer.stdin.write("go\n")
            producer.stdin.flush()
        seen = [report_of(producer) for producer in producers]
        report_of(relay)
    return float(count / (max(one["ended"] for one in seen) - min(one["began"] for one in seen)))


def report_of(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, _ = process.communicate(timeout=DRAIN_SECONDS_MAX)
    if process.returncode:
        raise LostOrDoubled(f"{process.args!r} ended with {process.returncode}")
    try:
        report: dict[str, Any] = json.loads(out)
    except ValueError as error:
        raise LostOrDoubled(f"{process.args!r} printed {out[-500:]!r}") from error
    return report


@contextmanager
def child(module: str, settings: str) -> Iterator[subprocess.Popen[str]]:
    """A process that was given its settings and has said that it is ready."""
    with subprocess.Popen(
        [sys.executable, "-m", module], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(settings + "\n")
            process.stdin.flush()
            if not process.stdout.readline():
                raise LostOrDoubled(f"{process.args!r} ended with {process.wait()} before it was ready")
            yield process
        finally:
            process.kill()


@contextmanager
def _relay(dsn: str, destinations: Sequence[str], count: int, **more: Any) -> Iterator[subprocess.Popen[str]]:
    """A relay process that has registered; it ends when it has settled so many."""
    settings = {"dsn": dsn, "destinations": list(destinations), "count": count, **more}
    with child("redrive.bench.drain", json.dumps(settings)) as process:
        yield process


def relay_rate(dsn: str, destinations: Sequence[str], count: int, **more: Any) -> float:
    """From the relay's start to its last settle."""
    with _relay(dsn, destinations, count, **more) as relay:
        seen = report_of(relay)
    return float(count / (seen["ended"] - seen["started"]))


def require_all_delivered(dsn: str, count: int) -> None:
    enqueued, pending, leased, parked, closed = one_row(dsn, "SELECT * FROM redrive.conservation")
    if (enqueued, pending, leased, parked, closed) != (count, 0, 0, 0, count):
        raise LostOrDoubled(f"{count} expected; {enqueued=} {pending=} {leased=} {parked=} {closed=}")


WORKLOADS: Sequence[Workload] = (
    Workload(
        "W1",
        "enqueue one by one, with a business INSERT",
        "redrive.enqueue",
        "two plain INSERTs",
        0.85,
        enqueue_one_by_one,
    ),
    Workload("W2", "enqueue 20,000 in bulk", "redrive.enqueue_many", "plain INSERT", 0.2, enqueue_in_bulk),
    Workload("W3", "drain 20,000 no-op messages", "one relay", "SQL without a client", 0.5, drain),
    Workload("W4", "commit to handler at 100 a second: median", "p50", "p50 allowed", 1.0, wake_up, unit="ms"),
    Workload("W4p99", "commit to handler: the slowest of a hundred", "p99", "p99 allowed", 1.0, wake_up, unit="ms"),
    Workload(
        "W5", "5,000 messages with 500,000 finished behind", "behind history", "empty tables", 0.9, drain_beside_history
    ),
    Workload(
        "W6", "strict order: 10,000 messages over 1,000 keys", "one relay", "SQL without a client", 0.3, drain_in_order
    ),
    Workload(
        "W7",
        "W6 beside a blocked key with 100,000 behind",
        "one key blocked",
        "no key blocked",
        0.8,
        drain_beside_blocked_key,
    ),
    Workload(
        "W8",
        "300,000 messages beside an open transaction",
        "last 50,000",
        "first 50,000",
        0.6,
        drain_beside_old_transaction,
    ),
    Workload("W9", "enqueue by 32 connections, wake-up on", "wake-up on", "wake-up off", 0.7, enqueue_beside_relay),
    Workload(
        "W10",
        "15 destinations beside five that are slow or held back",
        "beside others",
        "one destination",
        0.7,
        drain_beside_others,
    ),
)
