"""The four calls of a producer.

Each needs one statement in the transaction that is open on the given connection, and commits or rolls back with it
(G-01). Bad input is refused at the call and changes nothing (G-19).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Unpack

from redrive.message import EnqueueOptions, NewMessage, Receipt
from redrive.produce import drivers
from redrive.produce.protocol import many, one, prepare, prepare_many


def enqueue(conn: Any, destination: str, payload: Any, **options: Unpack[EnqueueOptions]) -> Receipt:
    """Enqueue one message in the transaction of `conn`; the options are the fields of `NewMessage`.

    A key that is known already gives the first message back (`already_existed`) and writes nothing. With another
    payload it raises `KeyReused`, or gives the first message back where `on_other_payload="first_wins"`; the
    transaction stays usable either way.
    """
    return drivers.run(conn, one(prepare(NewMessage(destination, payload, **options))))


async def aenqueue(conn: Any, destination: str, payload: Any, **options: Unpack[EnqueueOptions]) -> Receipt:
    """`enqueue` for an asynchronous connection."""
    return await drivers.arun(conn, one(prepare(NewMessage(destination, payload, **options))))


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
