"""Every query of the dashboard and of the alerts runs on a real Prometheus that scrapes a real relay."""

from __future__ import annotations

import json
import socket
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

import redrive
from tests.deploy.test_deploy import ALERTS, DEPLOY
from tests.observe.test_secrets import relay
from tests.support.waiting import wait_until

VARIABLES = {"$destination": ".*", "$__rate_interval": "1m"}
# Nothing moves these in a minute of an undisturbed relay: they answer, with no series. Consumers run in workers.
QUIET = ("duty_failures", "notify_reconnects", "unreachable", "relay_listening", "redrive_consumer_")


@pytest.mark.full
@pytest.mark.req("G-20")
def test_every_query_answers(database: str, tmp_path: Path, prometheus: str) -> None:
    with psycopg.connect(database) as conn:
        for way in ("terminal", "retryable", "unknown", "none"):
            redrive.enqueue(conn, "async", {"way": way, "secret": "x"}, headers={"x-secret": "x"})
    with relay(database, tmp_path, "json") as (_, port), scraping(prometheus, tmp_path, port) as url:
        wait_until(lambda: bool(answer(url, "redrive_parked > 0")), seconds=60, what="the first values")
        wait_until(lambda: bool(answer(url, "rate(redrive_claims_total[1m])")), seconds=30, what="a second scrape")
        silent = [expr for expr in dashboard_queries() if not answer(url, expr)]
        for alert in (*ALERTS.ALERTS, *ALERTS.PAYMENTS):
            answer(url, alert.expr)
    assert [expr for expr in silent if not any(name in expr for name in QUIET)] == []


def dashboard_queries() -> list[str]:
    dashboard = json.loads((DEPLOY / "grafana" / "redrive.json").read_text())
    exprs = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    for variable, value in VARIABLES.items():
        exprs = [expr.replace(variable, value) for expr in exprs]
    return exprs


def answer(url: str, expr: str) -> list[Any]:
    """The series; a query that Prometheus refuses raises."""
    asked = urllib.parse.urlencode({"query": expr})
    with urllib.request.urlopen(f"{url}/api/v1/query?{asked}") as reply:
        said = json.load(reply)
    assert said["status"] == "success", expr
    result: list[Any] = said["data"]["result"]
    return result


@contextmanager
def scraping(program: str, directory: Path, relay_port: int) -> Iterator[str]:
    """A Prometheus that asks the relay every second, on a port of its own."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    target = f"127.0.0.1:{relay_port}"
    job = {"job_name": "redrive", "static_configs": [{"targets": [target]}]}
    config = {"global": {"scrape_interval": "1s"}, "scrape_configs": [job]}
    (directory / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML too
    command = [
        program,
        f"--config.file={directory / 'prometheus.yml'}",
        f"--storage.tsdb.path={directory / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    url = f"http://127.0.0.1:{port}"
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            wait_until(lambda: is_up(url), seconds=30, what="Prometheus")
            yield url
        finally:
            process.terminate()


def is_up(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/-/ready") as reply:
            return bool(reply.status == 200)
    except OSError:
        return False
