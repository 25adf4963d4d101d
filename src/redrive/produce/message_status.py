"""After the enqueue: status, wait and cancel, with a producer's rights. SQL: `verbs/status.sql`, `verbs/cancel.sql`.

`wait` is refused in an open transaction: there it could wait for what its own commit would set off, or look for ever at
an old snapshot.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator
from datetime import UTC, datetime, timedelta
from typing import Any, Final, LiteralString
from uuid import UUID

from redrive.errors import InvalidValue, NotFinished, NotFound
from redrive.message import CancelAnswer, MessageId, Status
from redrive.produce import bounds, drivers
from redrive.produce.driver import Within
from redrive.produce.protocol import Steps, as_uuid

WAIT_SECONDS_DEFAULT: Final = 30.0
WAIT_SECONDS_MAX: Final = 86_400.0
PAUSE_SECONDS_FIRST: Final = 0.02
PAUSE_SECONDS_MAX: Final = 1.0

# Times as microseconds and the result as text: every driver has its own idea of the others.
_STATUS: Final[LiteralString] = (
    "SELECT id, state, park_reason, attempt, in_doubt, cancel_requested,"
    " (extract(epoch FROM due_at) * 1000000)::bigint, (extract(epoch FROM closed_at) * 1000000)::bigint,"
    " code, reference, result::text FROM redrive.status_1(%s::text::uuid, %s::text, %s::text)"
)
_CANCEL: Final[LiteralString] = "SELECT redrive.cancel_1(%s::text::uuid)"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

Id = MessageId | UUID | str


def status(conn: Any, id: Id | None = None, *, key: str | None = None, tenant: str = "default") -> Status:
    """How a message stands, named by its id, or by its key and tenant. `NotFound` where there is none.

    Also inside the transaction that enqueued it. In one that is REPEATABLE READ it is as old as its snapshot.
    """
    return drivers.run(conn, _look(_named(id, key, tenant)), Within.ANY)


async def astatus(conn: Any, id: Id | None = None, *, key: str | None = None, tenant: str = "default") -> Status:
    """`status` for an asynchronous connection."""
    return await drivers.arun(conn, _look(_named(id, key, tenant)), Within.ANY)


def cancel(conn: Any, id: Id | None = None, *, key: str | None = None, tenant: str = "default") -> CancelAnswer:
    """No further attempt of a message; holds once your transaction has been committed. `NotFound` where there is none.

    Only `CANCELLED` says that it was never sent and never will be; `IN_FLIGHT` and `IN_DOUBT` that no attempt follows
    the one that may have had its effect; the others that nothing was changed.
    """
    return drivers.run(conn, _cancel(_named(id, key, tenant)), Within.ANY)


async def acancel(conn: Any, id: Id | None = None, *, key: str | None = None, tenant: str = "default") -> CancelAnswer:
    """`cancel` for an asynchronous connection."""
    return await drivers.arun(conn, _cancel(_named(id, key, tenant)), Within.ANY)


def wait(
    conn: Any,
    id: Id | None = None,
    *,
    key: str | None = None,
    tenant: str = "default",
    timeout_seconds: float = WAIT_SECONDS_DEFAULT,
) -> Status:
    """Wait until a message is closed or parked. `NotFinished` once timeout_seconds (0 to 86,400) have passed.

    After the commit, on a connection without an open transaction (`OpenTransaction` otherwise); none is left open.
    """
    named = _named(id, key, tenant)
    for pause in pauses(timeout_seconds, time.monotonic):
        found = drivers.run(conn, _look(named), Within.NONE)
        if found.is_finished:
            return found
        if pause:
            time.sleep(pause)
    raise _not_finished(found, timeout_seconds)


async def wait_async(
    conn: Any,
    id: Id | None = None,
    *,
    key: str | None = None,
    tenant: str = "default",
    timeout_seconds: float = WAIT_SECONDS_DEFAULT,
) -> Status:
    """`wait` for an asynchronous connection (`await` is a word of Python's own)."""
    from asyncio import sleep  # not for those who never wait: it is half of the import's time

    named = _named(id, key, tenant)
    for pause in pauses(timeout_seconds, time.monotonic):
        found = await drivers.arun(conn, _look(named), Within.NONE)
        if found.is_finished:
            return found
        if pause:
            await sleep(pause)
    raise _not_finished(found, timeout_seconds)


def _named(id: object, key: object, tenant: object) -> tuple[str | None, str | None, str]:
    if (id is None) == (key is None):
        raise InvalidValue("Name the message by its id or by its key, one of the two.")
    return None if id is None else _id(id), bounds.key(key), bounds.name("tenant", tenant)


def _id(id: object) -> str:
    try:
        return str(as_uuid(id))  # type: ignore[arg-type]
    except (ValueError, TypeError, AttributeError):
        raise InvalidValue(f"id is {bounds.shown(id)}; it must be the id of a receipt, a UUID.") from None


def _look(named: tuple[str | None, str | None, str]) -> Steps[Status]:
    ((id, state, *others),) = yield _STATUS, named
    if state is None:
        raise _not_found(named)
    park_reason, attempt, in_doubt, cancel_requested, due_at, closed_at, code, reference, result = others
    return Status(
        MessageId(as_uuid(id)),
        state,
        park_reason=park_reason,
        attempt=attempt or 0,
        in_doubt=bool(in_doubt),
        cancel_requested=bool(cancel_requested),
        due_at=_moment(due_at),
        closed_at=_moment(closed_at),
        code=code,
        reference=reference,
        result=None if result is None else json.loads(result),
    )


def _cancel(named: tuple[str | None, str | None, str]) -> Steps[CancelAnswer]:
    id = named[0] or str((yield from _look(named)).id)
    ((answer,),) = yield _CANCEL, (id,)
    if answer == "not_found":
        raise _not_found(named)
    return CancelAnswer(answer)


def pauses(timeout_seconds: float, clock: Callable[[], float]) -> Generator[float]:
    """Longer and longer, then 0 for the look at the end."""
    if not 0 <= timeout_seconds <= WAIT_SECONDS_MAX:
        raise InvalidValue(f"timeout_seconds is {timeout_seconds}; it must be from 0 to {WAIT_SECONDS_MAX:.0f}.")
    end = clock() + timeout_seconds
    pause = PAUSE_SECONDS_FIRST
    while (left := end - clock()) > 0:
        yield min(pause, left)
        pause = min(pause * 2, PAUSE_SECONDS_MAX)
    yield 0.0


def _moment(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else _EPOCH + timedelta(microseconds=microseconds)


def _not_found(named: tuple[str | None, str | None, str]) -> NotFound:
    id, key, tenant = named
    which = f"with the id {id}" if key is None else f"with the key {bounds.shown(key)} of tenant {tenant!r}"
    return NotFound(
        f"There is no message {which}: the transaction that enqueued it has not been committed, or was rolled back, or"
        " its history was retired."
    )


def _not_finished(found: Status, timeout_seconds: float) -> NotFinished:
    return NotFinished(
        f"Message {found.id} is {found.state} after {timeout_seconds:g} seconds, with {found.attempt} attempts made;"
        " it goes on without you.",
        status=found,
    )
