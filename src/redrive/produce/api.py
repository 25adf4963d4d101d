"""The four calls of a producer; `redrive` exports them.

Each runs in the transaction that is open on the given connection, commits or rolls back with it (G-01), and needs
one statement. Bad input is refused at the call and changes nothing (G-19).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from redrive.message import NewMessage, OnOtherPayload, Priority, Receipt
from redrive.produce import drivers
from redrive.produce.protocol import many, one, prepare, prepare_many


def enqueue(
    conn: Any,
    destination: str,
    payload: Any,
    *,
    key: str | None = None,
    order_by: str | None = None,
    token_seed: str | None = None,
    tenant: str = "default",
    kind: str = "",
    due_at: datetime | None = None,
    expires_at: datetime | None = None,
    priority: Priority | str = Priority.NORMAL,
    headers: Mapping[str, str] | None = None,
    content_type: str | None = None,
    on_other_payload: OnOtherPayload = "refuse",
) -> Receipt:
    """Enqueue one message in the transaction of `conn`; the parameters are those of `NewMessage`.

    A key that is known already gives the first message back (`already_existed`) and writes nothing. With another
    payload it raises `KeyReused`, or gives the first message back where `on_other_payload="first_wins"`; the
    transaction stays usable either way.
    """
    message = NewMessage(
        destination,
        payload,
        key=key,
        order_by=order_by,
        token_seed=token_seed,
        tenant=tenant,
        kind=kind,
        due_at=due_at,
        expires_at=expires_at,
        priority=priority,
        headers=headers,
        content_type=content_type,
        on_other_payload=on_other_payload,
    )
    return drivers.run(conn, one(prepare(message)))


async def aenqueue(
    conn: Any,
    destination: str,
    payload: Any,
    *,
    key: str | None = None,
    order_by: str | None = None,
    token_seed: str | None = None,
    tenant: str = "default",
    kind: str = "",
    due_at: datetime | None = None,
    expires_at: datetime | None = None,
    priority: Priority | str = Priority.NORMAL,
    headers: Mapping[str, str] | None = None,
    content_type: str | None = None,
    on_other_payload: OnOtherPayload = "refuse",
) -> Receipt:
    """`enqueue` for an asynchronous connection."""
    message = NewMessage(
        destination,
        payload,
        key=key,
        order_by=order_by,
        token_seed=token_seed,
        tenant=tenant,
        kind=kind,
        due_at=due_at,
        expires_at=expires_at,
        priority=priority,
        headers=headers,
        content_type=content_type,
        on_other_payload=on_other_payload,
    )
    return await drivers.arun(conn, one(prepare(message)))


def enqueue_many(conn: Any, messages: Iterable[NewMessage]) -> list[Receipt]:
    """Enqueue many messages in the transaction of `conn`; receipts in their order.

    The first of several messages with one key wins; those with one `order_by` keep their order. Two such calls cannot
    deadlock with each other, whatever the order of their messages. Where one is refused (`KeyReused` names the
    positions), nothing of the call stays.

    More than 10,000 messages, or 16 MiB of payloads, are several statements, and the same holds over all of them: the
    keys of the whole call are registered before its first message.
    """
    return drivers.run(conn, many(prepare_many(list(messages))))


async def aenqueue_many(conn: Any, messages: Iterable[NewMessage]) -> list[Receipt]:
    """`enqueue_many` for an asynchronous connection."""
    return await drivers.arun(conn, many(prepare_many(list(messages))))
