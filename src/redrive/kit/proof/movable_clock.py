"""A PostgreSQL server whose clock can be set while it runs, by libfaketime (Debian's package of that name).

Its monotonic clock, and the clocks of all other processes, go on as they are.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from redrive.operate import embedded
from redrive.store.migrations import migrate

LIBRARIES: Final = ("/usr/lib/*/faketime/libfaketime.so.1", "/usr/lib/faketime/libfaketime.so.1")
MISSING: Final = "libfaketime is not installed (apt-get install libfaketime)"


def library() -> Path | None:
    return next((found for pattern in LIBRARIES for found in Path("/").glob(pattern.lstrip("/"))), None)


class MovableClock:
    """It begins with the machine's time."""

    def __init__(self, place: Path) -> None:
        self._file = place / "clock"
        self.set_off(0.0)

    @property
    def environment(self) -> Mapping[str, str]:
        """Of the server's processes."""
        preloaded = library()
        if preloaded is None:
            raise RuntimeError(MISSING)
        return {
            "LD_PRELOAD": str(preloaded),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    def set_off(self, seconds: float) -> None:
        """So many seconds ahead of the machine's clock; behind it where negative."""
        fresh = self._file.with_suffix(".new")
        fresh.write_text(f"{seconds:+.3f}\n", "ascii")
        fresh.chmod(0o644)
        fresh.rename(self._file)


@contextmanager
def open_movable(place: Path) -> Iterator[tuple[str, MovableClock]]:
    """The DSN of a migrated database on its own server, and its clock."""
    clock = MovableClock(place)
    server = embedded.start(place / "movable", environment=clock.environment)
    try:
        migrate.upgrade(server.dsn)
        yield server.dsn, clock
    finally:
        server.stop()
