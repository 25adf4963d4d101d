"""Fifty planted secrets are in no log line, metric, parked record, trace or output of a command (G-15)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import LiteralString

import psycopg
import pytest
from click.testing import CliRunner

import redrive
from redrive.operate.cli.main import cli
from tests.observe.secrets import SECRETS, WAYS
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
DESTINATIONS = ("async", "thread", "checked")
READS = (
    ["status"],
    ["dead", "list"],
    ["held", "list"],
    ["unrecorded", "list"],
    ["groups", "list"],
    ["messages", "list"],
    ["destinations", "list"],
    ["metrics"],
    ["health"],
    ["doctor"],
)
TEXTS = """
SELECT coalesce(k.last_text, '') || coalesce(k.last_stack, '') || k.context::text || k.error_class FROM redrive.parked k
UNION ALL SELECT coalesce(a.text, '') || coalesce(a.code, '') FROM redrive.attempt a
UNION ALL SELECT g::text FROM redrive.failure_group g
UNION ALL SELECT d::text FROM redrive.destination d
UNION ALL SELECT l::text FROM redrive.late_answer l
"""
OPEN: LiteralString = """
SELECT (SELECT count(*) FROM redrive.lease)
     + (SELECT count(*) FROM redrive.pending p WHERE NOT EXISTS (
            SELECT 1 FROM redrive.destination d WHERE d.name = p.destination AND d.paused_at IS NOT NULL))
"""
# The app as a relay loads it, with the user's own tracing set up beside it.
TRACED = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
import sys
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(out=sys.stderr)))
trace.set_tracer_provider(provider)
from tests.observe.secrets import app
"""


@pytest.mark.full
@pytest.mark.req("G-15")
@pytest.mark.parametrize("log_format", ["console", "json", "logfmt"])
def test_fifty_planted_secrets_appear_nowhere(database: str, tmp_path: Path, log_format: str) -> None:
    assert len(set(SECRETS)) == 50
    planted = plant(database)
    with relay(database, tmp_path, log_format) as (log, port):
        wait_until(lambda: open_messages(database) == 0, seconds=90, what="every message to end")
        metrics = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
        health = urllib.request.urlopen(f"http://127.0.0.1:{port}/health").read().decode()
    said = log.read_text()
    assert "message.parked" in said
    assert '"name": "send async"' in said, "spans are in what is searched"
    assert "redrive_parked_total" in metrics
    shown = {"log": said, "metrics": metrics, "health": health, "records": records(database), **commands(database)}
    assert count(database, "SELECT count(*) FROM redrive.parked") > planted / 2
    assert {name: found for name, text in shown.items() if (found := leaked(text))} == {}


def plant(dsn: str) -> int:
    """Every secret in a payload and in headers, let loose in one way at each destination; returns how many."""
    with psycopg.connect(dsn) as conn:
        for number, secret in enumerate(SECRETS):
            for destination in DESTINATIONS:
                way = WAYS[number % len(WAYS)]
                headers = {"x-secret": secret, "authorization": f"Bearer {secret}", "traceparent": secret}
                redrive.enqueue(conn, destination, {"way": way, "secret": secret, "note": secret}, headers=headers)
    return len(SECRETS) * len(DESTINATIONS)


@contextmanager
def relay(dsn: str, directory: Path, log_format: str, **settings: str) -> Iterator[tuple[Path, int]]:
    """A real process, at its most talkative; all it says is in one file."""
    (directory / "traced.py").write_text(TRACED)
    log = directory / "log.txt"
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(directory), str(ROOT / "src"), str(ROOT)]),
        "REDRIVE_DSN": dsn,
        **{f"REDRIVE_{name.upper()}": value for name, value in settings.items()},
    }
    options = ["--metrics-listen", "0", "--log-format", log_format, "--log-level", "debug"]
    command = [sys.executable, "-m", "redrive", "relay", "traced:app", *options]
    with log.open("w") as file, subprocess.Popen(command, env=environment, stdout=file, stderr=file) as process:
        try:
            wait_until(lambda: "metrics and health on" in log.read_text(), seconds=30, what="the relay's port")
            yield log, int(log.read_text().partition("127.0.0.1:")[2][:6].strip('"\x1b[ ,\n').split('"')[0].split()[0])
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=60)


def open_messages(dsn: str) -> int:
    """What still runs or can be claimed: ten bugs in a row pause a destination."""
    return count(dsn, OPEN)


def count(dsn: str, query: LiteralString) -> int:
    with psycopg.connect(dsn) as conn:
        row = conn.execute(query).fetchone()
    assert row is not None
    return int(row[0])


def records(dsn: str) -> str:
    with psycopg.connect(dsn) as conn:
        return "\n".join(str(row[0]) for row in conn.execute(TEXTS).fetchall())


def commands(dsn: str) -> dict[str, str]:
    """What every command that reads prints, as tables and as JSON; and one message of each kind in full."""
    with psycopg.connect(dsn) as conn:
        parked = conn.execute("SELECT DISTINCT ON (destination, reason, error_class) id, reason FROM redrive.parked")
        shows = [[str(reason), "show", str(id)] for id, reason in parked.fetchall()]
        shows += [["messages", "show", id] for _, _, id in shows]
    printed: dict[str, str] = {}
    for arguments in (*READS, *shows):
        for more in ([], ["--json"]):
            done = CliRunner().invoke(cli, [*arguments, *more, "--dsn", dsn])
            assert done.exit_code in (0, 6), (arguments, done.output)
            printed[" ".join([*arguments, *more])] = done.output
    return printed


def leaked(text: str) -> list[str]:
    """Secrets that are in it whole, or by a part of their own that is long enough to be of use."""
    folded = text.replace("\n", " ")
    return [secret for secret in SECRETS if secret in folded or any(part in folded for part in parts(secret))]


def parts(secret: str) -> list[str]:
    return [
        part for part in secret.replace("@", " ").replace(".", " ").split() if len(part) >= 9 and part[-2:].isdigit()
    ]
