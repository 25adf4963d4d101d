"""What the embedded server refuses. Each message is a sentence with the value; `next` says what helps."""

from typing import ClassVar

from redrive.errors import OperatorError


class EmbeddedError(OperatorError):
    """An embedded server cannot do what was asked; the message says why, `next` what helps."""

    code: ClassVar[str] = "EMBEDDED"


class NoBinaries(EmbeddedError):
    """No PostgreSQL or NATS server was found that could be run."""

    code = "EMBEDDED_NO_BINARIES"


class DataDirRefused(EmbeddedError):
    """The directory holds something that this server must not be started on."""

    code: ClassVar[str] = "EMBEDDED_DATA_DIR"


class MajorMismatch(DataDirRefused):
    """The data were written by another major version of PostgreSQL."""

    code = "EMBEDDED_MAJOR"


class PortTaken(EmbeddedError):
    """Something else listens on the port."""

    code = "EMBEDDED_PORT"


class AlreadyRunning(EmbeddedError):
    """A server runs on the data directory and cannot be joined as asked."""

    code = "EMBEDDED_RUNNING"


class StartFailed(EmbeddedError):
    """The server did not come up; the message has the end of its log."""

    code = "EMBEDDED_START"
