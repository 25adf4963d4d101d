"""A server that several processes use: the last one that closes it stops it. The base of PostgreSQL and NATS."""

from pathlib import Path
from typing import IO, Self

from redrive.operate.embedded import processes
from redrive.operate.embedded.locks import alone, is_last


class SharedServer:
    """As one of its users sees it."""

    data_dir: Path
    pid: int
    _users: IO[str] | None

    @property
    def running(self) -> bool:
        return processes.is_alive(self.pid)

    def stop(self) -> None:
        """Even if others use it. Safe to repeat."""
        with alone(self.data_dir):
            self._end()
            self._leave()

    def close(self) -> bool:
        """Stops it if this was the last user (True). Safe to repeat."""
        with alone(self.data_dir):
            last = self._users is not None and is_last(self._users)
            if last:
                self._end()
            self._leave()
        return last

    def _end(self) -> None:
        processes.stop(self.pid, self.data_dir)

    def _leave(self) -> None:
        if self._users is not None:
            self._users.close()
            self._users = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
