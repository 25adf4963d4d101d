"""The bootstrap: what it makes, when it makes it again, and what it says when it cannot.

The clone is a small one of the test's own, with one requirement that lies beside it as a wheel, so nothing
here needs the network.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.waiting import wait_until

REPOSITORY = Path(__file__).resolve().parents[2]
PIP = next((REPOSITORY / "bootstrap").glob("pip-*.whl"))
PYPROJECT = '[project]\nname = "redrive"\nversion = "9.8.7"\nscripts = { redrive = "redrive.cli:main" }\n'
AS_USER = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"]
CLI = "import sys\nimport tiny\n\ndef main():\n    print(tiny.WORD, *sys.argv)\n    return 3\n"


class Clone:
    """A clone with what the bootstrap reads, and a directory of wheels instead of an index."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.wheels = root.parent / "wheels"
        (root / "bootstrap").mkdir(parents=True)
        for name in ("environment.py", "launch"):
            (root / "bootstrap" / name).write_bytes((REPOSITORY / "bootstrap" / name).read_bytes())
        (root / "bootstrap/launch").chmod(0o755)
        os.link(PIP, root / "bootstrap" / PIP.name)
        (root / "src/redrive").mkdir(parents=True)
        (root / "src/redrive/cli.py").write_text(CLI)
        (root / "pyproject.toml").write_text(PYPROJECT)
        self.require("hello")

    def require(self, word: str) -> None:
        """Lock the requirement `tiny`, whose only content is a word."""
        self.wheels.mkdir(exist_ok=True)
        path = self.wheels / "tiny-1.0-py3-none-any.whl"
        path.unlink(missing_ok=True)
        with zipfile.ZipFile(path, "w") as wheel:
            wheel.writestr("tiny.py", f"WORD = {word!r}\n")
            wheel.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
            wheel.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr("tiny-1.0.dist-info/RECORD", "")
        self.lock(hashlib.sha256(path.read_bytes()).hexdigest())

    def lock(self, digest: str) -> None:
        (self.root / "requirements.txt").write_text(f"tiny==1.0 --hash=sha256:{digest}\n")

    @property
    def variables(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "PYTHON"))}
        return {
            **kept,
            "PYTHON": sys.executable,
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self.wheels),
        }

    def launch(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.root / "bootstrap/launch"), "run", *arguments],
            env={**self.variables, **variables},
            capture_output=True,
            text=True,
            timeout=100,
        )

    @property
    def stamp(self) -> Path:
        return self.root / ".environment/run/made-from"


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    return Clone(tmp_path / "a clone, spaced")


def test_command_runs_from_the_clone_with_its_requirements(clone: Clone) -> None:
    done = clone.launch("redrive", "up", "two words")
    assert (done.returncode, done.stdout) == (3, "hello redrive up two words\n"), done.stderr
    version = "import importlib.metadata as m; print(m.version('redrive'), m.entry_points(name='redrive'))"
    shown = clone.launch("python", "-c", version).stdout
    assert shown.startswith("9.8.7")
    assert "redrive.cli:main" in shown


def test_environment_is_made_once(clone: Clone) -> None:
    assert "making" in clone.launch("redrive").stderr
    before = clone.stamp.stat().st_mtime_ns
    assert clone.launch("redrive").stderr == ""
    assert clone.stamp.stat().st_mtime_ns == before


@pytest.mark.full
def test_changed_requirements_make_it_again(clone: Clone) -> None:
    clone.launch("redrive")
    clone.require("goodbye")
    assert clone.launch("redrive").stdout == "goodbye redrive\n"


@pytest.mark.full
def test_moved_clone_makes_it_again(clone: Clone) -> None:
    clone.launch("redrive")
    clone.root = clone.root.rename(clone.root.with_name("elsewhere"))
    done = clone.launch("redrive")
    assert (done.returncode, done.stdout) == (3, "hello redrive\n"), done.stderr


@pytest.mark.full
def test_half_made_environment_is_not_used(clone: Clone) -> None:
    clone.launch("redrive")
    clone.stamp.unlink()
    assert "making" in clone.launch("redrive").stderr
    assert clone.stamp.exists()


@pytest.mark.full
def test_requirement_with_another_hash_is_refused(clone: Clone) -> None:
    clone.lock("0" * 64)
    done = clone.launch("redrive")
    assert done.returncode == 1
    assert "does not have the hash that the requirements lock" in done.stderr
    assert not clone.stamp.exists()


def test_requirement_without_a_hash_is_refused(clone: Clone) -> None:
    (clone.root / "requirements.txt").write_text("tiny==1.0\n")
    done = clone.launch("redrive")
    assert done.returncode == 1
    assert "Hashes are required" in done.stderr


def test_tampered_pip_is_refused_before_it_runs(clone: Clone) -> None:
    wheel = clone.root / "bootstrap" / PIP.name
    content = wheel.read_bytes()
    wheel.unlink()
    wheel.write_bytes(content + b"!")
    done = clone.launch("redrive")
    assert done.returncode == 1
    assert "was not used" in done.stderr
    assert not (clone.root / ".environment/run").exists()


def test_missing_wheel_is_explained(clone: Clone) -> None:
    next(clone.wheels.iterdir()).unlink()
    done = clone.launch("redrive")
    assert done.returncode == 1
    assert "has no wheel for this machine and Python" in done.stderr


def test_unreachable_index_is_explained(clone: Clone) -> None:
    next(clone.wheels.iterdir()).unlink()
    done = clone.launch(
        "redrive",
        PIP_NO_INDEX="0",
        PIP_INDEX_URL="http://127.0.0.1:9/simple",
        PIP_RETRIES="1",
        no_proxy="127.0.0.1",
    )
    assert done.returncode == 1
    assert "The package index cannot be reached" in done.stderr


@pytest.mark.full
def test_two_at_once_make_it_once(clone: Clone) -> None:
    starts = [
        subprocess.Popen(
            [str(clone.root / "bootstrap/launch"), "run", "redrive"],
            env=clone.variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    ends = [process.communicate(timeout=100) for process in starts]
    assert [end[0] for end in ends] == ["hello redrive\n"] * 3
    assert sum("making" in end[1] for end in ends) == 1


def test_second_says_for_whom_it_waits(clone: Clone) -> None:
    import fcntl

    lock = clone.root / ".environment/run.lock"
    lock.parent.mkdir()
    with lock.open("w+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write("4711")
        file.flush()
        with subprocess.Popen(
            [str(clone.root / "bootstrap/launch"), "run", "redrive"],
            env=clone.variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stderr is not None
            assert "waiting for process 4711" in process.stderr.readline()
            fcntl.flock(file, fcntl.LOCK_UN)
            assert process.communicate(timeout=100)[0] == "hello redrive\n"


@pytest.mark.full
def test_pip_settings_that_would_install_elsewhere_are_overruled(clone: Clone, tmp_path: Path) -> None:
    done = clone.launch("redrive", PIP_USER="1", PIP_TARGET=str(tmp_path / "target"))
    assert done.stdout == "hello redrive\n", done.stderr
    assert not (tmp_path / "target").exists()


def test_old_python_is_refused_with_its_version(clone: Clone) -> None:
    code = (
        "import runpy, sys; sys.version_info = (3, 9, 2, 'final', 0); sys.argv = ['x', 'run'];"
        f"runpy.run_path({str(clone.root / 'bootstrap/environment.py')!r}, run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=clone.variables)
    assert done.returncode == 1
    assert "Redrive needs Python 3.11 or newer" in done.stderr
    assert not (clone.root / ".environment").exists()


def test_no_python_at_all_is_explained(clone: Clone, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "dirname").symlink_to("/usr/bin/dirname")
    for name in ("python3", "python3.11", "python3.12", "python3.13", "python3.14"):
        (tools / name).write_text("#!/bin/sh\nexit 1\n")
        (tools / name).chmod(0o755)
    launch = (clone.root / "bootstrap/launch").read_text().replace("/usr/bin/python3", "")
    (clone.root / "bootstrap/launch").write_text(launch)
    done = clone.launch("redrive", PATH=str(tools), PYTHON="")
    assert done.returncode == 1
    assert "Python 3.11 or newer is needed" in done.stderr


def test_full_disk_is_explained(clone: Clone) -> None:
    small = clone.root.parent / "small"
    small.mkdir()
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(small)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("file systems cannot be mounted here")
    try:
        done = clone.launch("redrive", REDRIVE_ENVIRONMENT=str(small / "environment"))
    finally:
        subprocess.run(["umount", str(small)], check=True)
    assert done.returncode == 1
    assert "disk" in done.stderr
    assert "full" in done.stderr


def test_clone_of_another_user_is_refused_with_the_way_out(clone: Clone) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    for directory in (clone.root, *clone.root.parents):
        if directory.stat().st_uid == 0 and str(directory).startswith("/tmp/"):
            directory.chmod(0o755)
    done = subprocess.run(
        [*AS_USER, "/usr/bin/python3", str(clone.root / "bootstrap/environment.py"), "run"],
        capture_output=True,
        text=True,
        env={"PATH": os.defpath},
        cwd="/",
    )
    if "No such file" in done.stderr:
        pytest.skip("there is no /usr/bin/python3")
    assert done.returncode == 1
    assert "which belongs to uid 0. Make a clone of your own" in done.stderr


def test_locked_requirements_name_no_index() -> None:
    for name in ("requirements.txt", "requirements-dev.txt"):
        text = (REPOSITORY / name).read_text()
        assert "--hash=sha256:" in text
        assert "://" not in text
        assert "--index" not in text
        assert "--find-links" not in text


def test_help_of_the_scripts_needs_no_server() -> None:
    done = subprocess.run(
        [sys.executable, str(REPOSITORY / "bootstrap/check.py"), "--help"], capture_output=True, text=True
    )
    assert done.returncode == 0
    assert "--full" in done.stdout


@pytest.mark.full
def test_killed_bootstrap_leaves_nothing_that_is_used(clone: Clone) -> None:
    with subprocess.Popen(
        [str(clone.root / "bootstrap/launch"), "run", "redrive"],
        env=clone.variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        wait_until((clone.root / ".environment/run").exists, seconds=30, what="the environment to be begun")
        os.killpg(process.pid, 9)
    assert not clone.stamp.exists()
    assert clone.launch("redrive").stdout == "hello redrive\n"
