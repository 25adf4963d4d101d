"""The stage `fetch`: the diff of two commits of a real git repository, bounded in size (R-09).

Reads only, by the `git` of the machine, with no configuration but the repository's own and no hook, filter or network.
What cannot be fetched says why by its error class; the texts name no path and no commit.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from redrive.systems.reviews.taxonomy import retryable, terminal

DIFF_BYTES_MAX: Final = 128 * 1024
GIT_SECONDS: Final = 20.0
_DIFF: Final = (
    *("diff", "--no-color", "--no-ext-diff", "--no-textconv", "--find-renames", "--unified=3"),
    *("--src-prefix=a/", "--dst-prefix=b/"),
)
# The settings name the repository, so it may belong to another user of the machine than the relay's.
_SETTINGS: Final = ("core.quotePath=false", "core.fsmonitor=false", "protocol.allow=never", "safe.directory=*")
_GIT: Final = ("git", *(part for setting in _SETTINGS for part in ("-c", setting)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Changelist:
    """What `fetch` leaves for the later stages. base, head: whole commit ids. diff: unified, as text."""

    base: str
    head: str
    diff: str

    @classmethod
    def read(cls, result: Mapping[str, Any], diff: str) -> Changelist:
        return cls(base=result["base"], head=result["head"], diff=diff)

    @property
    def result(self) -> dict[str, Any]:
        """Of the stage. The diff is not in it: it may have anything in it, and results are shown."""
        said = self.diff.encode()
        return {"base": self.base, "head": self.head, "bytes": len(said), "sha256": hashlib.sha256(said).hexdigest()}


async def fetch_changelist(path: Path, base: str, head: str, *, bytes_max: int = DIFF_BYTES_MAX) -> Changelist:
    """Raises the answers of `redrive.systems.reviews.taxonomy`. What git did not finish can be tried again."""
    try:
        async with asyncio.timeout(GIT_SECONDS):
            await _require_repository(path)
            ids = [await _commit(path, one) for one in (base, head)]
            diff = await _output(path, [*_DIFF, *ids, "--"], bytes_max=bytes_max)
    except TimeoutError:
        raise retryable("NETWORK_TIMEOUT", "Git did not answer in time.") from None
    except FileNotFoundError:
        raise terminal("CONFIG_INVALID", "There is no program git on this machine.") from None
    if diff is None:
        raise retryable("UPSTREAM_INTERNAL", "Git could not compare the two commits.")
    if len(diff) > bytes_max:
        raise terminal("DIFF_TOO_LARGE", f"The diff has more than {bytes_max // 1024} KiB.")
    if not diff.strip():
        raise terminal("DIFF_EMPTY", "There is no difference between the two commits.")
    return Changelist(
        base=ids[0], head=ids[1], diff=diff.decode("utf-8", "replace").replace("\0", "\N{REPLACEMENT CHARACTER}")
    )


async def _require_repository(path: Path) -> None:
    if not await asyncio.to_thread(path.is_dir) or not await _output(path, ["rev-parse", "--git-dir"], bytes_max=4096):
        raise terminal("REPOSITORY_UNKNOWN", "There is no git repository where the settings say.")


async def _commit(path: Path, name: str) -> str:
    found = await _output(
        path, ["rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"], bytes_max=200
    )
    if not found:
        raise terminal("COMMIT_UNKNOWN", "The repository does not have one of the two commits.")
    return found.decode().strip()


async def _output(path: Path, arguments: Sequence[str], *, bytes_max: int) -> bytes | None:
    """At most one byte more than `bytes_max`; None where git says that it cannot. One that was killed says nothing."""
    async with _running(path, arguments) as process:
        assert process.stdout is not None
        said = b""
        while len(said) <= bytes_max:
            chunk = await process.stdout.read(bytes_max + 1 - len(said))
            if not chunk:
                code = await process.wait()
                if code < 0:
                    raise retryable("UPSTREAM_INTERNAL", "Git was killed before it was done.")
                return said if code == 0 else None
            said += chunk
        return said


@asynccontextmanager
async def _running(path: Path, arguments: Sequence[str]) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        *_GIT,
        "-C",
        str(path),
        *arguments,
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=DEVNULL,
        env=_environment(),
        limit=64 * 1024,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def _environment() -> dict[str, str]:
    """Nothing of the user's configuration, and no question on a terminal."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    fixed = {
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
    }
    return {**kept, **fixed}
