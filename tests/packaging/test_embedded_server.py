"""The embedded server as the user who runs the tests sees it."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from redrive.operate import embedded
from tests.conftest import CrashServer
from tests.support.scratch import scratch
from tests.support.waiting import wait_until

SOURCE = Path(embedded.__file__).parents[3]


@pytest.fixture
def place() -> Iterator[Path]:
    with scratch() as directory:
        yield directory / "data"


def ask(dsn: str, question: str) -> str:
    with psycopg.connect(dsn) as connection:
        row = connection.execute(question.encode()).fetchone()
    assert row is not None
    return str(row[0])


def test_server_is_durable_and_speaks_utc(crash_server: CrashServer) -> None:
    dsn = crash_server().dsn
    assert ask(dsn, "SHOW fsync") == "on"
    assert ask(dsn, "SHOW synchronous_commit") == "on"
    assert ask(dsn, "SHOW full_page_writes") == "on"
    assert ask(dsn, "SHOW timezone") == "UTC"
    assert ask(dsn, "SHOW server_encoding") == "UTF8"
    assert ask(dsn, "SELECT datcollate FROM pg_database WHERE datname = 'postgres'") == "C.UTF-8"
    assert ask(dsn, "SELECT current_user") == "redrive"


def test_settings_of_the_caller_win(crash_server: CrashServer) -> None:
    assert ask(crash_server(settings={"work_mem": "7MB"}).dsn, "SHOW work_mem") == "7MB"


def test_default_is_a_socket_that_only_we_can_reach(crash_server: CrashServer) -> None:
    server = crash_server()
    assert server.port is None
    assert ask(server.dsn, "SHOW listen_addresses") == ""
    assert server.socket_dir.stat().st_mode & 0o077 == 0


def test_tcp_is_on_loopback_and_asks_for_the_password(crash_server: CrashServer) -> None:
    server = crash_server(port=0)
    assert server.port
    assert ask(server.dsn, "SHOW listen_addresses") == "127.0.0.1"
    without = re.sub(r":[^:@/]+@", "@", server.dsn)
    assert without != server.dsn
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(without)
    assert (server.data_dir.with_name("data.password").stat().st_mode & 0o077) == 0


def test_second_start_joins_and_the_last_user_stops(place: Path) -> None:
    first = embedded.start(place)
    second = embedded.start(place)
    assert (first.joined, second.joined) == (False, True)
    assert second.pid == first.pid
    assert first.close() is False
    assert first.close() is False
    assert ask(second.dsn, "SELECT 1") == "1"
    assert second.close() is True
    assert not second.running


def test_second_start_on_another_port_is_refused_with_the_pid(place: Path) -> None:
    with embedded.start(place) as server:
        with pytest.raises(embedded.AlreadyRunning, match=rf"pid {server.pid}\b.*port 1\b"):
            embedded.start(place, port=1)


def test_two_starts_at_once_make_one_server(place: Path) -> None:
    code = (
        "import sys; from redrive.operate import embedded; s = embedded.start(sys.argv[1]);"
        "print(s.pid, flush=True); sys.stdin.read(); s.close()"
    )
    starts = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(place)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
        )
        for _ in range(3)
    ]
    try:
        pids = set()
        for process in starts:
            assert process.stdout is not None
            pids.add(int(process.stdout.readline()))
    finally:
        for process in starts:
            process.communicate(timeout=60)
    assert len(pids) == 1
    assert [process.returncode for process in starts] == [0, 0, 0]
    assert not (place / "postmaster.pid").exists()


def test_server_of_a_killed_parent_is_joined(place: Path) -> None:
    code = (
        "import os, signal, sys; from redrive.operate import embedded; s = embedded.start(sys.argv[1]);"
        "print(s.pid, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(place)],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
    )
    assert done.returncode == -signal.SIGKILL
    with embedded.start(place) as server:
        assert server.joined
        assert server.pid == int(done.stdout)
        assert ask(server.dsn, "SELECT 1") == "1"
    assert not server.running


def test_committed_data_survive_a_killed_server(crash_server: CrashServer) -> None:
    server = crash_server()
    with psycopg.connect(server.dsn) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
    os.kill(server.pid, signal.SIGKILL)
    wait_until(lambda: not server.running, seconds=10, what="the killed server to end")
    assert (server.data_dir / "postmaster.pid").exists()
    again = crash_server(server.data_dir)
    assert not again.joined
    assert ask(again.dsn, "SELECT answer FROM kept") == "42"


def test_stale_pid_file_that_names_another_process_is_no_server(crash_server: CrashServer) -> None:
    server = crash_server()
    server.stop()
    # Not our own pid: PostgreSQL knows that its parent is no server.
    with subprocess.Popen(["sleep", "60"]) as other:
        lines = [other.pid, server.data_dir, 1, 5432, server.data_dir, "", "1 1", "ready   "]
        (server.data_dir / "postmaster.pid").write_text("\n".join(map(str, lines)) + "\n")
        again = crash_server(server.data_dir)
        assert not again.joined
        assert ask(again.dsn, "SELECT 1") == "1"
        assert other.poll() is None
        other.kill()


@pytest.mark.parametrize("content", ["", "99999999\n", "not a number\n"])
def test_half_written_pid_file_is_no_server(crash_server: CrashServer, content: str) -> None:
    server = crash_server()
    server.stop()
    (server.data_dir / "postmaster.pid").write_text(content)
    assert ask(crash_server(server.data_dir).dsn, "SELECT 1") == "1"


def test_stop_is_safe_to_repeat_and_ends_open_connections(crash_server: CrashServer) -> None:
    server = crash_server()
    connection = psycopg.connect(server.dsn)
    server.stop()
    server.stop()
    assert not server.running
    with pytest.raises(psycopg.OperationalError):
        connection.execute("SELECT 1")
    connection.close()


def test_data_of_another_major_are_refused_with_the_way_out(crash_server: CrashServer) -> None:
    server = crash_server()
    server.stop()
    (server.data_dir / "PG_VERSION").write_text("14\n")
    with pytest.raises(embedded.MajorMismatch, match=r"PostgreSQL 14.*REDRIVE_PG_BIN.*pg_upgrade"):
        embedded.start(server.data_dir)


def test_directory_with_other_files_is_refused_and_untouched(place: Path) -> None:
    place.mkdir()
    (place / "letter.txt").write_text("dear all")
    with pytest.raises(embedded.DataDirRefused, match="not empty"):
        embedded.start(place)
    assert [path.name for path in place.iterdir()] == ["letter.txt"]


def test_half_made_directory_is_made_again(place: Path) -> None:
    half = place.with_name("data.new")
    half.mkdir()
    (half / "PG_VERSION").write_text("18\n")
    with embedded.start(place) as server:
        assert ask(server.dsn, "SELECT 1") == "1"
    assert not half.exists()


def test_long_path_gets_a_short_socket(place: Path) -> None:
    long = place.parent / ("d" * 100) / "data"
    with embedded.start(long) as server:
        assert server.socket_dir != long
        assert len(os.fsencode(server.socket_dir / ".s.PGSQL.5432")) <= 107
        assert server.socket_dir.stat().st_mode & 0o077 == 0
        assert ask(server.dsn, "SELECT 1") == "1"
        with embedded.start(long) as second:
            assert second.joined
            assert ask(second.dsn, "SELECT 1") == "1"
    assert not server.socket_dir.exists()


def test_path_with_spaces_and_other_letters(place: Path) -> None:
    with embedded.start(place.parent / "über uns" / "data") as server:
        assert ask(server.dsn, "SELECT 1") == "1"


def test_taken_port_is_refused_with_its_number(place: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        with pytest.raises(embedded.PortTaken, match=rf"Port {port} on 127\.0\.0\.1"):
            embedded.start(place, port=port)


def test_server_that_cannot_start_says_why(place: Path) -> None:
    with pytest.raises(embedded.StartFailed, match="no_such_setting"):
        embedded.start(place, settings={"no_such_setting": "1"})


def test_missing_binaries_are_refused_with_the_way_out(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDRIVE_PG_BIN", "/nowhere")
    with pytest.raises(embedded.NoBinaries, match=r"/nowhere, named by REDRIVE_PG_BIN, has no initdb"):
        embedded.start(place)
