"""`redrive health` and `redrive metrics`: one word with its reasons, and the values of the database."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from click.testing import CliRunner

from redrive.operate.cli.main import cli
from tests.cli.conftest import Redrive

pytestmark = pytest.mark.req("G-20")


def test_an_empty_database_is_healthy(redrive: Redrive) -> None:
    assert (redrive("health").exit_code, redrive("health").stdout) == (0, "healthy\n")


def test_work_that_nobody_does_is_unhealthy(look: Redrive) -> None:
    result = look("health")
    assert result.exit_code == 6
    assert result.stdout.startswith("unhealthy\n")
    assert "no live relay handles it" in result.stdout
    assert look.json("health", exit_code=6)["status"] == "unhealthy"


def test_a_database_that_does_not_answer_is_unreachable(nowhere: Redrive) -> None:
    assert nowhere("health").exit_code == 7


@pytest.mark.parametrize(
    ("status", "code", "strict", "exit_code"),
    [
        ("healthy", 200, False, 0),
        ("degraded", 200, False, 0),
        ("degraded", 200, True, 6),
        ("unhealthy", 503, False, 6),
    ],
)
def test_a_relay_answers_for_itself(status: str, code: int, strict: bool, exit_code: int) -> None:
    with answering(code, json.dumps({"status": status, "reasons": ["down: erp"]})) as url:
        result = CliRunner().invoke(cli, ["health", "--url", url, *(["--strict"] if strict else [])])
    assert (result.exit_code, result.stdout) == (exit_code, f"{status}\n  down: erp\n")


@pytest.mark.parametrize("text", ["<html>", "{}", '{"status": "great", "reasons": []}'])
def test_what_is_no_relay_is_said_to_be_none(text: str) -> None:
    with answering(200, text) as url:
        assert CliRunner().invoke(cli, ["health", "--url", url]).exit_code == 7


def test_a_relay_that_is_not_there_is_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert CliRunner().invoke(cli, ["health", "--url", f"http://127.0.0.1:{port}"]).exit_code == 7
    assert CliRunner().invoke(cli, ["health", "--url", "file:///etc/passwd"]).exit_code == 2


def test_metrics_prints_the_values_of_the_database_once(look: Redrive) -> None:
    result = look("metrics")
    assert result.exit_code == 0
    assert 'redrive_parked{destination="shop",reason="dead"} 1.0' in result.stdout
    assert {"name": "parked", "subject": "shop", "reason": "held", "value": 1.0} in look.json("metrics")["gauges"]


@contextmanager
def answering(code: int, text: str) -> Iterator[str]:
    """A server that gives one answer."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(code)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            thread.join()
