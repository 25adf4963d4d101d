"""How the engine reaches a destination."""

from collections.abc import Awaitable
from typing import Protocol

from redrive.answers import Answer
from redrive.message import Attempt


class Transport(Protocol):
    """How a message reaches its destination. Only `send` is required. Optional methods:

    `async validate(attempt)` raises `Terminal` when the payload cannot be sent.
    `async lookup(attempt) -> LookupAnswer` asks the destination whether an earlier attempt took effect.
    `limit_key(attempt) -> str | None` names the part of the destination that limits apply to (a host, a tenant). It is
    stored and shown, so it is never a secret; None means the destination as a whole.
    `use_database(dsn)` tells it where the engine's database is, before the first send.
    `async aclose()` closes what is open; another relay of this process may use the transport again.
    """

    def send(self, attempt: Attempt, /) -> Awaitable[Answer | None]: ...
