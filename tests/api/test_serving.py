"""`redrive console` and `redrive up` as processes, and the console out of an installed wheel."""

from __future__ import annotations

import http.client
import os
import re
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest
from click.testing import CliRunner

from redrive.errors import SettingsError
from redrive.operate.cli.main import cli
from redrive.operate.web import serving
from redrive.settings import Settings
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
APP = "import redrive\napp = redrive.App()\n\n@app.destination('mail')\nasync def mail(message): pass\n"
_LINK = re.compile(r"http://\S+/login\?link=\S+")
pytestmark = [pytest.mark.req("G-21")]


@contextmanager
def running(place: Path, *arguments: str, path: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command as a process in that directory, and the link that it printed; ended at last."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("REDRIVE_", "PG"))}
    log = place / "log"
    command = [sys.executable, "-m", "redrive", *arguments]
    with (
        log.open("w") as lines,
        subprocess.Popen(
            command, cwd=place, env={**environment, "PYTHONPATH": path}, stdout=lines, stderr=lines, text=True
        ) as process,
    ):
        try:
            wait_until(
                lambda: process.poll() is not None or _LINK.search(log.read_text()) is not None,
                seconds=60,
                what="the link",
            )
            found = _LINK.search(log.read_text())
            assert found, log.read_text()
            yield process, found[0]
        finally:
            if process.poll() is None:
                process.kill()


def ask(
    address: str, *, method: str = "GET", headers: Mapping[str, str] = {}, form: Mapping[str, str] | None = None
) -> tuple[int, str, list[tuple[str, str]]]:
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.netloc, timeout=30)
    try:
        body = urlencode(form) if form else None
        kind = {"Content-Type": "application/x-www-form-urlencoded"} if form else {}
        target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
        connection.request(method, target, body=body, headers={**kind, **headers})
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), answer.getheaders()
    finally:
        connection.close()


def log_in(link: str) -> str:
    """By the printed link, as a browser without scripts would; returns the cookie of the session."""
    origin = f"http://{urlsplit(link).netloc}"
    status, page, headers = ask(link)
    assert status == 200, page
    cookie = _cookies(headers)
    token = re.findall(r'name="csrf" value="([^"]+)"', page)[0]
    secret = link.partition("link=")[2]
    form = {"csrf": token, "token": secret, "next": "/"}
    status, page, headers = ask(
        f"{origin}/login", method="POST", headers={"Cookie": cookie, "Origin": origin}, form=form
    )
    assert status == 303, page
    return _cookies(headers)


def _cookies(headers: list[tuple[str, str]]) -> str:
    return "; ".join(value.partition(";")[0] for name, value in headers if name.lower() == "set-cookie")


def ended(process: subprocess.Popen[str]) -> int:
    process.send_signal(signal.SIGTERM)
    return process.wait(timeout=30)


@pytest.mark.full
def test_an_installed_wheel_serves_the_console_with_all_that_its_pages_load(database: str, tmp_path: Path) -> None:
    built = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(built, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(site)
    with running(tmp_path, "console", "--port", "0", "--dsn", database, path=str(site)) as (process, link):
        origin = f"http://{urlsplit(link).netloc}"
        session = {"Cookie": log_in(link)}
        for page in ("/login", "/"):
            status, text, _ = ask(origin + page, headers=session)
            assert status == 200, text
            loaded = re.findall(r'(?:src|href)="([^"]+\.(?:css|js|svg|woff2|png|ico))"', text)
            assert loaded
            for one in loaded:
                assert one.startswith("/assets/"), one
                assert ask(origin + one)[0] == 200, one
            assert not re.findall(r'(?:src|href|action)="(?:https?:)?//', text)
        status, text, _ = ask(f"{origin}/api/v1/me", headers=session)
        assert '"role":"admin"' in text
        assert ended(process) == 0


@pytest.mark.full
def test_up_serves_the_console_beside_the_relay_and_prints_the_way_in(database: str, tmp_path: Path) -> None:
    (tmp_path / "shopapp.py").write_text(APP)
    with running(tmp_path, "up", "shopapp:app", "--dsn", database, path=str(ROOT / "src")) as (process, link):
        status, text, _ = ask(f"http://{urlsplit(link).netloc}/api/v1/status", headers={"Cookie": log_in(link)})
        assert status == 200
        assert '"handled":true' in text
        assert ended(process) == 0


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_beyond_this_machine_the_command_does_not_start_with_nobody_who_could_log_in(database: str, host: str) -> None:
    result = CliRunner().invoke(cli, ["console", "--host", host, "--port", "0", "--dsn", database])
    assert result.exit_code == 2
    assert "without a token or a proxy to log in by" in result.stderr


def test_a_port_that_is_taken_is_said_and_up_takes_another() -> None:
    with serving.listening(Settings(console_listen="127.0.0.1:0")) as first:
        taken = Settings(console_listen=f"127.0.0.1:{first.getsockname()[1]}")
        with pytest.raises(SettingsError, match="cannot listen"):
            serving.listening(taken)
        with serving.listening(taken, any_port=True) as second:
            assert second.getsockname()[1] != first.getsockname()[1]
