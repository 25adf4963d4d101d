"""The data directory: made whole or not at all, checked before a server touches it.

Beside it lie `.password` (for TCP; the socket needs none, since its directory admits only us) and `.log`.
"""

import contextlib
import errno
import hashlib
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from redrive.operate.embedded.binaries import Binaries
from redrive.operate.embedded.errors import DataDirRefused, MajorMismatch, StartFailed
from redrive.operate.embedded.identity import Identity
from redrive.operate.embedded.locks import beside

SUPERUSER = "redrive"
INITDB_SECONDS_MAX = 120.0
SOCKET_PATH_BYTES_MAX = 107  # sun_path of Linux, less the closing zero
LOG_BYTES_MAX = 16 * 1024 * 1024  # a longer log is moved to .log.1 at the next start


def default_data_dir() -> Path:
    """For root a place that the account `nobody` can reach."""
    if os.geteuid() == 0:
        return Path("/var/lib/redrive/postgresql")
    home = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local/share")
    return Path(home) / "redrive/postgresql"


@contextlib.contextmanager
def refusals_for(place: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT}:
            raise
        raise DataDirRefused(
            f"The data directory {place} cannot be used by uid {os.geteuid()}: {error}.",
            next="choose a directory that you own, on a disk with at least 200 MB free",
        ) from error


def initialise(place: Path, binaries: Binaries, identity: Identity) -> None:
    if has_data(place):
        _check_major(place, binaries)
        identity.own(place)
        return
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise DataDirRefused(
            f"{place} is not empty and holds no PostgreSQL data.", next="name another or an empty directory"
        )
    # Beside it first: a directory that initdb left half made is never taken for data.
    fresh = beside(place, ".new")
    shutil.rmtree(fresh, ignore_errors=True)
    password = write_password(place)
    identity.own(password)
    fresh.mkdir(mode=0o700)
    identity.own(fresh)
    _run_initdb(fresh, password, binaries, identity)
    fresh.rename(place)


def _check_major(place: Path, binaries: Binaries) -> None:
    found = major_of(place)
    if found != binaries.major:
        raise MajorMismatch(
            f"The data in {place} are of PostgreSQL {found}, and the binaries in {binaries.bin} are of "
            f"{binaries.major}.",
            next=f"set REDRIVE_PG_BIN to the bin directory of a PostgreSQL {found} (Debian: "
            f"/usr/lib/postgresql/{found}/bin), or move the data with pg_upgrade, or name another directory",
        )


def major_of(place: Path) -> int:
    return int((place / "PG_VERSION").read_text("ascii").split(".")[0])


def has_data(place: Path) -> bool:
    return (place / "PG_VERSION").exists()


def _run_initdb(fresh: Path, password: Path, binaries: Binaries, identity: Identity) -> None:
    command = [str(binaries.bin / "initdb"), "--pgdata", str(fresh), "--username", SUPERUSER]
    command += ["--locale=C.UTF-8", "--encoding=UTF8", "--auth-local=trust", "--auth-host=scram-sha-256"]
    command += ["--pwfile", str(password), "--no-instructions"]
    done = identity.run(command, seconds=INITDB_SECONDS_MAX)
    if done.returncode != 0:
        shutil.rmtree(fresh, ignore_errors=True)
        raise StartFailed(
            f"initdb could not make {fresh}: {(done.stderr or done.stdout).strip()}",
            next=f"see that {fresh.parent} has room and can be reached by {identity}",
        )


def write_password(place: Path) -> Path:
    """For TCP; initdb reads it as the server's user."""
    path = beside(place, ".password")
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
        file.write(secrets.token_urlsafe(24) + "\n")
    return path


def read_password(place: Path) -> str | None:
    try:
        return beside(place, ".password").read_text("ascii").strip()
    except FileNotFoundError:
        return None


def socket_dir(place: Path, identity: Identity) -> Path:
    """The data directory itself, or a short one below the temporary directory when its path is too long."""
    if _fits(place):
        return place
    digest = hashlib.sha256(os.fsencode(place)).hexdigest()[:16]
    for base in (Path(tempfile.gettempdir()), Path("/tmp")):  # noqa: S108 - checked to be our own below
        short = base / f"redrive-{os.geteuid()}-{digest}"
        if _fits(short):
            break
    with contextlib.suppress(FileExistsError):
        short.mkdir(mode=0o700)
    found = short.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid not in {os.geteuid(), identity.uid}:
        raise DataDirRefused(
            f"{short}, where the socket of {place} goes, belongs to uid {found.st_uid}.",
            next="remove it, or set TMPDIR to a directory of your own, or use a shorter data directory",
        )
    short.chmod(0o700)
    identity.own(short)
    return short


def _fits(directory: Path) -> bool:
    # Room for the lock file's longer name costs nothing and keeps the bound simple.
    return len(os.fsencode(directory / f".s.PGSQL.{65535}")) <= SOCKET_PATH_BYTES_MAX


def turn_log(place: Path) -> int:
    """Keeps the log within bounds; returns the offset at which this start begins."""
    log = beside(place, ".log")
    if not log.exists():
        return 0
    if log.stat().st_size > LOG_BYTES_MAX:
        log.rename(beside(place, ".log.1"))
        return 0
    return log.stat().st_size


def log_tail(place: Path, *, begin: int = 0, lines: int = 20) -> str:
    try:
        with beside(place, ".log").open("rb") as file:
            file.seek(begin)
            text = file.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return ""
    return "\n".join(text.splitlines()[-lines:])
