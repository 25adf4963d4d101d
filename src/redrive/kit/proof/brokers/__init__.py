"""Real brokers for proofs and tests: each a process on a free port of loopback, with its data in a directory.

One module for each broker: its server, the transport and the source that a proof uses with it. They are imported by
name, because each needs the client of its extra and a program. `proxy` stands in front of a broker and loses replies.
"""

import importlib
import signal
from pathlib import Path
from typing import Any, Final, Protocol

from redrive.errors import SettingsError
from redrive.ports import Transport
from redrive.ports.sources import Source

BROKERS: Final = ("nats", "redis", "rabbitmq", "kafka")


class Server(Protocol):
    """A broker that can be started again after it was stopped. name: in reports. survives: what it has confirmed is
    there after a restart. port: where it listens."""

    name: str
    survives: bool
    port: int

    def start(self) -> None: ...

    def stop(self, number: int = signal.SIGTERM) -> None: ...

    def prepare(self, place: str) -> None:
        """Make the place: a stream, a queue, a topic."""
        ...

    def left(self, place: str, consumer: str) -> int:
        """Messages of the place that this consumer has not acknowledged."""
        ...

    def rewrite(self, said: bytes, port: int) -> bytes:
        """What the broker says to a client that came through a proxy on this port."""
        ...


class Kind(Protocol):
    """A module of this package."""

    def server(self, directory: Path) -> Server: ...

    def transport(self, port: int, place: str, **options: Any) -> Transport: ...

    def source(self, port: int, place: str, *, consumer: str) -> Source: ...


def kind(name: str) -> Kind:
    """Raises SettingsError, with what is to be installed, where this broker cannot run here."""
    try:
        module: Any = importlib.import_module(f"{__name__}.{name}")
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"{name} cannot run here: {error.name} is not installed; pip install 'redrive[prove]' brings it."
        ) from None
    why = module.missing()
    if why:
        raise SettingsError(f"{name} cannot run here: {why}")
    found: Kind = module
    return found
