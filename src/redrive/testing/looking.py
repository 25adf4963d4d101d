"""What a test asks of its own transaction: which messages were enqueued, and which wait for a person.

    assert_enqueued(conn, "mail", {"order": 1})
    assert_parked(conn, "mail", "ACCOUNT_LOCKED")

They look on the connection or session that the code under test used, so they see what is not committed yet. Nothing is
changed.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, LiteralString, NamedTuple

from redrive.message import JSON_CONTENT, MessageId
from redrive.produce import drivers
from redrive.produce.protocol import Steps

_MESSAGES: Final[LiteralString] = (
    "SELECT m.id, m.destination, m.body, m.key, m.tenant, m.kind, m.order_by, m.content_type"
    " FROM redrive.message m WHERE m.destination = %s::text ORDER BY m.id"
)
_PARKED: Final[LiteralString] = (
    "SELECT p.id, p.destination, p.error_class, p.reason, p.attempt, p.exhausted, m.key, m.tenant"
    " FROM redrive.parked p JOIN redrive.message m ON m.id = p.id"
    " WHERE p.destination = %s::text ORDER BY p.parked_at, p.id"
)


class Enqueued(NamedTuple):
    """A message as it was handed in. payload: read as JSON where it is, else the bytes."""

    id: MessageId
    destination: str
    payload: Any
    key: str | None
    tenant: str
    kind: str
    order_by: str | None


class Parked(NamedTuple):
    """A message that waits for a person. reason: dead, held or unrecorded. attempts: how often it was claimed.

    exhausted: it died because its attempts were used up.
    """

    id: MessageId
    destination: str
    error_class: str
    reason: str
    attempts: int
    exhausted: bool
    key: str | None
    tenant: str


def enqueued(conn: Any, destination: str) -> list[Enqueued]:
    """Every message for a destination, oldest first."""
    return drivers.run(conn, _enqueued(destination))


async def aenqueued(conn: Any, destination: str) -> list[Enqueued]:
    """`enqueued` for an asynchronous connection."""
    return await drivers.arun(conn, _enqueued(destination))


def assert_enqueued(conn: Any, destination: str, payload: Any = ..., *, count: int = 1, **values: Any) -> None:
    """Exactly so many messages for a destination have this payload and these values (key, tenant, kind, order_by)."""
    _check("messages for", enqueued(conn, destination), destination, count, _wanted(payload, values))


async def aassert_enqueued(conn: Any, destination: str, payload: Any = ..., *, count: int = 1, **values: Any) -> None:
    """`assert_enqueued` for an asynchronous connection."""
    _check("messages for", await aenqueued(conn, destination), destination, count, _wanted(payload, values))


def parked(conn: Any, destination: str) -> list[Parked]:
    """Every message of a destination that waits for a person, the longest waiting first."""
    return drivers.run(conn, _parked(destination))


async def aparked(conn: Any, destination: str) -> list[Parked]:
    """`parked` for an asynchronous connection."""
    return await drivers.arun(conn, _parked(destination))


def assert_parked(conn: Any, destination: str, error_class: str, *, count: int = 1, **values: Any) -> None:
    """Exactly so many messages of a destination are parked with this error class and these values (reason, key, …)."""
    _check("parked messages of", parked(conn, destination), destination, count, {"error_class": error_class, **values})


async def aassert_parked(conn: Any, destination: str, error_class: str, *, count: int = 1, **values: Any) -> None:
    """`assert_parked` for an asynchronous connection."""
    found = await aparked(conn, destination)
    _check("parked messages of", found, destination, count, {"error_class": error_class, **values})


def _enqueued(destination: str) -> Steps[list[Enqueued]]:
    rows = yield _MESSAGES, (destination,)
    return [
        Enqueued(id, name, json.loads(bytes(body)) if content_type == JSON_CONTENT else bytes(body), *others)
        for id, name, body, *others, content_type in rows
    ]


def _parked(destination: str) -> Steps[list[Parked]]:
    rows = yield _PARKED, (destination,)
    return [Parked(*row) for row in rows]


def _wanted(payload: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    return {**({} if payload is ... else {"payload": payload}), **values}


def _check(
    what: str, found: Sequence[Enqueued] | Sequence[Parked], destination: str, count: int, wanted: Mapping[str, Any]
) -> None:
    known = Parked._fields if what.startswith("parked") else Enqueued._fields
    unknown = sorted(set(wanted) - set(known))
    if unknown:
        raise TypeError(f"{unknown} cannot be asked for; these can: {', '.join(known)}.")
    fitting = [one for one in found if all(getattr(one, name) == value for name, value in wanted.items())]
    if len(fitting) == count:
        return
    listed = "\n".join(f"  {one}" for one in found) or "  none"
    raise AssertionError(f"{len(fitting)} {what} {destination!r} with {wanted}, not {count}. There are:\n{listed}")
