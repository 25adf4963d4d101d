"""The account that the server runs as: an ordinary user's own, which PostgreSQL refuses for root.

For root it runs in a user namespace in which root's files belong to `nobody`, or, where namespaces are forbidden (a
chroot, many containers), as `nobody` itself. Data of another owner are served as that owner.
"""

import os
import pwd
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, get_args

from redrive.operate.embedded import binaries as pg
from redrive.operate.embedded.binaries import COMMAND_SECONDS_MAX, Binaries
from redrive.operate.embedded.errors import EmbeddedError, NoBinaries

OVERFLOW_ID = 65534  # the kernel's overflow uid and gid

Way = Literal["direct", "namespace", "nobody"]


@dataclass(frozen=True, slots=True)
class Identity:
    way: Way
    uid: int  # the owner that its files need, as seen from here
    gid: int
    switch: bool = False  # by setuid in the child

    def __str__(self) -> str:
        return f"uid {self.uid}" + (" in a user namespace" if self.way == "namespace" else "")

    def command(self, command: list[str]) -> list[str]:
        if self.way != "namespace":
            return command
        return ["unshare", "--user", f"--map-user={OVERFLOW_ID}", f"--map-group={OVERFLOW_ID}", "--", *command]

    def run(self, command: list[str], *, seconds: float) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(command),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
            **self._child(),
        )

    def spawn(self, command: list[str], *, log: IO[bytes]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self.command(command), stdout=log, stderr=subprocess.STDOUT, start_new_session=True, **self._child()
        )

    def _child(self) -> dict[str, Any]:
        account = {"user": self.uid, "group": self.gid, "extra_groups": []} if self.switch else {}
        return {"stdin": subprocess.DEVNULL, "cwd": "/", "env": _environment(), **account}

    def own(self, path: Path) -> None:
        """With all below it. Only root can need that."""
        if os.geteuid() != 0 or path.lstat().st_uid == self.uid:
            return
        # From the leaves up: the top changes last, so that a walk cut short is taken up again.
        for directory, _, names in os.walk(path, topdown=False):
            for name in names:
                os.chown(Path(directory) / name, self.uid, self.gid, follow_symlinks=False)
            os.chown(directory, self.uid, self.gid)
        os.chown(path, self.uid, self.gid, follow_symlinks=False)


def usable(*, data_dir: Path, run_as: str | None = None) -> tuple[Binaries, Identity]:
    binaries = pg.find()
    for identity in _identities(data_dir, run_as or os.environ.get("REDRIVE_PG_AS")):
        reachable = _reachable(binaries, identity)
        if reachable is not None:
            _check_reach(data_dir, identity)
            return reachable, identity
    raise NoBinaries(
        f"The programs in {binaries.bin} can be run by root only, and PostgreSQL refuses root.",
        next="run as an ordinary user, or make that directory readable for all (chmod a+rX)",
    )


def _identities(data_dir: Path, forced: str | None) -> Iterator[Identity]:
    if os.geteuid() != 0:
        yield Identity(way="direct", uid=os.geteuid(), gid=os.getegid())
        return
    if forced is not None and forced not in get_args(Way)[1:]:
        raise EmbeddedError(
            f"REDRIVE_PG_AS is {forced!r}; it can be 'namespace' or 'nobody'.", next="unset it, or set one of them"
        )
    if forced is not None:
        yield _NAMESPACE if forced == "namespace" else _as_nobody()
        return
    owner = data_dir.stat() if data_dir.exists() else None
    if owner is not None and owner.st_uid != 0 and (data_dir / "PG_VERSION").exists():
        yield Identity(way="direct", uid=owner.st_uid, gid=owner.st_gid, switch=True)
        return
    if _succeeds(_NAMESPACE, "true"):
        yield _NAMESPACE
    yield _as_nobody()


_NAMESPACE = Identity(way="namespace", uid=0, gid=0)


def _as_nobody() -> Identity:
    uid = gid = OVERFLOW_ID
    with suppress(KeyError):
        uid, gid = pwd.getpwnam("nobody")[2:4]
    return Identity(way="nobody", uid=uid, gid=gid, switch=True)


def _succeeds(identity: Identity, *command: str) -> bool:
    try:
        return identity.run(list(command), seconds=COMMAND_SECONDS_MAX).returncode == 0
    except OSError:
        return False


def _reachable(binaries: Binaries, identity: Identity) -> Binaries | None:
    if _runs(binaries.bin, identity):
        return binaries
    if not binaries.copyable or os.geteuid() != 0:
        return None
    copied = pg.copy(binaries)
    return Binaries(copied, binaries.major, copyable=False) if _runs(copied, identity) else None


def _runs(directory: Path, identity: Identity) -> bool:
    # Both: initdb needs the libraries that lie beside, which the server does not.
    return all(_succeeds(identity, str(directory / name), "--version") for name in pg.PROGRAMS)


def _check_reach(data_dir: Path, identity: Identity) -> None:
    """Refuse early what would fail obscurely: a directory above the data that the identity cannot pass."""
    if os.geteuid() != 0:
        return
    parent = data_dir.parent
    if not _succeeds(identity, "test", "-x", str(parent)):
        raise EmbeddedError(
            f"The server runs as {identity}, which cannot pass {parent} to its data in {data_dir}.",
            next="choose a data directory below /var/lib, or chmod o+x each directory above it",
        )


def _environment() -> dict[str, str]:
    """A plain environment: the caller's PG* variables are for clients, and its locale may not exist."""
    kept = {name: os.environ[name] for name in ("PATH", "TZ", "TMPDIR") if name in os.environ}
    return {"PATH": os.defpath, **kept, "LC_ALL": "C.UTF-8"}
