"""Makes the Python environment that Redrive runs in, with nothing but the standard library.

Promises: `.environment/run` (or `dev`, for the tests, or `peers`, for bench/peers) holds exactly what the
requirement files lock, every file checked against its hash; it is made again only when those files, the
Python or the place of the clone changed; two that run at once make it once. Prints the path of the
environment on standard output and everything meant for people on standard error. Works where Python comes
without pip and ensurepip: a pip wheel lies beside this file. The user's own pip configuration is left as it
is. Called by `bootstrap/launch`.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator, List, NoReturn, Tuple

PYTHON_OLDEST = (3, 11)
PIP_WHEEL = "pip-26.3-py3-none-any.whl"
PIP_SHA256 = "f3b60b20ffaadd4415ed7957212a38ac63fa4c5fa375bd0f4a797777940fad13"
STAMP = "made-from"
KINDS = {
    "run": ("requirements.txt",),
    "dev": ("requirements-dev.txt",),
    "peers": ("bench/peers/requirements.txt",),  # for bench/peers/run alone
}
LOG_LINES_SHOWN = 25

NETWORK = (
    r"Name or service not known|Temporary failure in name resolution|NewConnectionError|ConnectTimeout"
    r"|Network is unreachable|Connection refused|ProxyError|Max retries exceeded|NameResolutionError"
)

# What pip prints, and what it means for the person who waits. The first match wins.
DIAGNOSES = (
    (
        r"No space left on device|Disk quota exceeded",
        "The disk is full. Free about 400 MB and run this again.",
    ),
    (
        r"DO NOT MATCH THE HASHES|HashMismatch",
        (
            "A downloaded file does not have the hash that the requirements lock, so it was not installed. "
            "Clear pip's cache and run this again; if it persists, do not trust the package source."
        ),
    ),
    (
        r"CERTIFICATE_VERIFY_FAILED|SSLError",
        (
            "The package index has a certificate that this machine does not trust. "
            "Set PIP_CERT to your organisation's CA file, or install the ca-certificates package."
        ),
    ),
    (
        NETWORK,
        (
            "The package index cannot be reached. Check the network, or point pip at a mirror "
            "(PIP_INDEX_URL) or at a directory of wheels (PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheels)."
        ),
    ),
    (
        r"No matching distribution found|Could not find a version",
        (
            "The package index in use has no wheel for this machine and Python, or was not read. "
            "Use CPython 3.11 or newer on Linux x86-64 or arm64, or an index that has the wheel."
        ),
    ),
)


class Refusal(Exception):
    """The environment cannot be made; the message says why and what to do."""


def main(arguments: List[str]) -> int:
    """Make the environment of the kind that is asked for and print where it is."""
    kind = arguments[0] if arguments else "run"
    root = Path(__file__).resolve().parent.parent
    try:
        print(ensure(root, kind=kind))
    except Refusal as refusal:
        say(f"redrive: {refusal}")
        return 1
    except KeyboardInterrupt:
        say("redrive: stopped. Run this again and it begins anew.")
        return 130
    return 0


def ensure(root: Path, *, kind: str) -> Path:
    """The environment's directory, made or made again if need be."""
    check_python()
    if kind not in KINDS:
        raise Refusal(f"There is no environment {kind!r}; there are {' and '.join(KINDS)}.")
    home = Path(os.environ.get("REDRIVE_ENVIRONMENT") or root / ".environment")
    place = home / kind
    wanted = fingerprint(root, kind=kind)
    if is_made_from(place, wanted):
        return place
    with refusals_for(home):
        home.mkdir(parents=True, exist_ok=True)
        with alone(home / f"{kind}.lock"):
            if not is_made_from(place, wanted):
                make(root, place, kind=kind, wanted=wanted)
    return place


def check_python() -> None:
    """Refuse a Python that is too old before anything is written."""
    if sys.version_info[:2] < PYTHON_OLDEST:
        raise Refusal(
            "Redrive needs Python {}.{} or newer; {} is {}. Install a newer one and put it first on PATH, "
            "or name it in PYTHON=/path/to/python3.".format(
                PYTHON_OLDEST[0], PYTHON_OLDEST[1], sys.executable, platform.python_version()
            )
        )


def fingerprint(root: Path, *, kind: str) -> str:
    """A hash of all that the environment is made from: a difference means that it must be made again."""
    digest = hashlib.sha256()
    project = repr(project_of(root / "pyproject.toml"))
    python = os.path.realpath(sys.executable)
    for text in (str(root), python, sys.version, platform.machine(), PIP_SHA256, project):
        digest.update(text.encode("utf-8", "surrogateescape") + b"\0")
    for name in (*KINDS[kind], "bootstrap/environment.py"):
        digest.update((root / name).read_bytes() + b"\0")
    return digest.hexdigest()


def is_made_from(place: Path, wanted: str) -> bool:
    """Whether the environment is there, whole, and made from what is wanted."""
    try:
        return (place / STAMP).read_text("ascii").strip() == wanted and (place / "bin/python").exists()
    except OSError:
        return False


@contextmanager
def refusals_for(home: Path) -> Iterator[None]:
    """Turn what the file system says into a sentence and a way out."""
    try:
        yield
    except OSError as error:
        elsewhere = "or set REDRIVE_ENVIRONMENT to a directory that you can write."
        if error.errno in (errno.EACCES, errno.EPERM):
            raise Refusal(
                f"You (uid {os.getuid()}) may not write {error.filename or home}, which belongs to "
                f"{owner_of(home)}. Make a clone of your own, {elsewhere}"
            ) from error
        if error.errno == errno.EROFS:
            raise Refusal(f"{home} is on a read-only file system. Clone to another place, {elsewhere}") from error
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise Refusal(f"The disk of {home} is full. Free about 400 MB and run this again, {elsewhere}") from error
        raise Refusal(f"{home} could not be made: {error}.") from error


def owner_of(path: Path) -> str:
    """Who owns the path, or the nearest directory above it that exists."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return f"uid {path.stat().st_uid}"


@contextmanager
def alone(lock: Path) -> Iterator[None]:
    """Hold the lock; whoever comes second waits and says for whom."""
    with lock.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            say(f"redrive: waiting for process {file.read().strip() or '?'}, which makes the environment …")
            fcntl.flock(file, fcntl.LOCK_EX)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def make(root: Path, place: Path, *, kind: str, wanted: str) -> None:
    """Make the environment from nothing. The stamp comes last, so a half-made one is never used."""
    wheel = checked_pip(root / "bootstrap" / PIP_WHEEL)
    say(f"redrive: making {place} with Python {platform.python_version()} (once; about a minute) …")
    if place.exists():
        shutil.rmtree(place)
    run(
        [sys.executable, "-m", "venv", "--without-pip", str(place)],
        "Python could not make a virtual environment.",
    )
    install(place, wheel, [root / name for name in KINDS[kind]])
    put_project_on_path(root, place)
    (place / STAMP).write_text(wanted + "\n", "ascii")
    say("redrive: the environment is ready.")


def checked_pip(wheel: Path) -> Path:
    """The pip wheel, if it is the one that we know."""
    try:
        found = hashlib.sha256(wheel.read_bytes()).hexdigest()
    except FileNotFoundError:
        raise Refusal(f"{wheel} is missing. Get a complete clone (git checkout -- bootstrap).") from None
    if found != PIP_SHA256:
        raise Refusal(
            f"{wheel} has the sha256 {found}, not {PIP_SHA256}, and was not used. "
            "Restore it (git checkout -- bootstrap)."
        )
    return wheel


def install(place: Path, wheel: Path, requirements: List[Path]) -> None:
    """Install what the requirement files lock: wheels only, each with a hash that matches."""
    # PIP_USER and its kind would send the files elsewhere; everything else of the user's configuration holds.
    unwanted = {"PIP_USER", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PYTHONPATH", "PYTHONHOME"}
    environment = {name: value for name, value in os.environ.items() if name not in unwanted}
    environment["PIP_USER"] = "0"
    command = [str(place / "bin/python"), "-I", str(wheel / "pip"), "install", "--no-input", "--no-color"]
    command += ["--disable-pip-version-check", "--require-hashes", "--only-binary", ":all:", "--no-deps"]
    for file in requirements:
        command += ["--requirement", str(file)]
    run(command, "The packages could not be installed.", environment=environment)


def run(command: List[str], failed: str, *, environment: "dict[str, str] | None" = None) -> None:
    """Run a step and show that it moves; if it fails, say why as well as can be told."""
    lines: List[str] = []
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        assert process.stdout is not None
        for raw in process.stdout:
            lines.append(raw.decode("utf-8", "replace").rstrip())
            show_progress(lines[-1])
    clear_progress()
    if process.returncode != 0:
        fail(failed, lines)


def fail(failed: str, lines: List[str]) -> NoReturn:
    """Raise the refusal for a step that printed these lines."""
    tail = "\n".join("  | " + line for line in lines[-LOG_LINES_SHOWN:])
    text = "\n".join(lines)
    for pattern, advice in DIAGNOSES:
        if re.search(pattern, text):
            raise Refusal(f"{failed} {advice}\n{tail}")
    raise Refusal(f"{failed} Its last words:\n{tail}")


def put_project_on_path(root: Path, place: Path) -> None:
    """Let the environment import `src/redrive` where it lies, know its version, and have the command."""
    packages = next(place.glob("lib/python*/site-packages"))
    name, version, scripts = project_of(root / "pyproject.toml")
    # Relative, so that a path with letters outside ASCII needs no encoding.
    (packages / f"{name}.pth").write_text(os.path.relpath(str(root / "src"), str(packages)) + "\n", "ascii")
    record = packages / f"{name}-{version}.dist-info"
    record.mkdir()
    (record / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", "utf-8")
    lines = [f"{script} = {target}" for script, target in scripts]
    (record / "entry_points.txt").write_text("\n".join(["[console_scripts]", *lines, ""]), "utf-8")
    for script, target in scripts:
        write_launcher(place / "bin" / script, target)


def project_of(pyproject: Path) -> Tuple[str, str, List[Tuple[str, str]]]:
    """The project's name, version and commands."""
    import tomllib  # here, because an older Python must get as far as the refusal

    project = tomllib.loads(pyproject.read_text("utf-8"))["project"]
    return project["name"], project["version"], sorted(project.get("scripts", {}).items())


def write_launcher(path: Path, target: str) -> None:
    """A command as a shell script: a `#!` line with our path in it would break on spaces and long paths."""
    module, _, function = target.partition(":")
    code = f"import sys; from {module} import {function}; sys.argv[0] = '{path.name}'; sys.exit({function}())"
    path.write_text(
        '#!/bin/sh\nhere=$(CDPATH="" cd -- "$(dirname -- "$0")" && pwd) || exit 1\n'
        f'exec "$here/python" -c "{code}" "$@"\n',
        "ascii",
    )
    path.chmod(0o755)


def show_progress(line: str) -> None:
    """One line that changes on a terminal; in a log, only the steps that take long."""
    width = 100
    if sys.stderr.isatty():
        sys.stderr.write("\r\033[K  " + line.partition(" (from ")[0][:width])
        sys.stderr.flush()
    elif line.startswith(("Collecting", "Installing")):
        say("  " + line.partition(" (from ")[0][:width])


def clear_progress() -> None:
    """Take the changing line away."""
    if sys.stderr.isatty():
        sys.stderr.write("\r\033[K")
        sys.stderr.flush()


def say(text: str) -> None:
    """Tell the person who waits."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
