"""The inbox of a consumer: what a broker delivers has its effect in PostgreSQL once (G-23).

    inbox = Inbox("billing")
    with conn.transaction():
        if inbox.receive(conn, event_id) is Received.FIRST:
            conn.execute("INSERT INTO invoice ...")
    # acknowledge it to the broker only now

The inbox row commits with your writes; a redelivery finds it and is SEEN. With `order_by` messages of one key are
received one after the other, and a message whose predecessor was deferred is BEHIND: defer it too. What is deferred
goes to the destination of the consumer's name. `redrive worker` does all of this for you
(docs/how-to/consume-from-a-broker.md); use `Inbox` in a consumer of your own.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack

from redrive.kit.inbox import Deferred, Received, defer, receive
from redrive.kit.statements import arun, run

__all__ = ["DeferOptions", "Deferred", "Inbox", "Received"]


class DeferOptions(TypedDict, total=False):
    """order_by: as it was received. kind, headers, content_type: of the engine's message."""

    order_by: str | None
    kind: str
    headers: Mapping[str, str] | None
    content_type: str | None


@dataclass(frozen=True)
class Inbox:
    """consumer: 1 to 100 characters; each consumer has an inbox of its own. tenant: of deferred messages.

    Every call runs in the transaction that is open on `conn`, on every kind of connection that `redrive.enqueue` takes.
    """

    consumer: str
    tenant: str = "default"

    def receive(self, conn: Any, message_id: str, *, order_by: str | None = None) -> Received:
        """Whether to process a message now. message_id: unique for this consumer, 1 to 500 characters.

        order_by: its ordering key, up to 1,000 characters; needs READ COMMITTED, and waits for a transaction that has
        received another message of the key.
        """
        return run(conn, receive(self.consumer, message_id, order_by=order_by, tenant=self.tenant))

    async def areceive(self, conn: Any, message_id: str, *, order_by: str | None = None) -> Received:
        """`receive` for an asynchronous connection."""
        return await arun(conn, receive(self.consumer, message_id, order_by=order_by, tenant=self.tenant))

    def defer(self, conn: Any, message_id: str, payload: Any, **options: Unpack[DeferOptions]) -> Deferred:
        """Hand a message to the engine, for the destination of the consumer's name, and record it as received.

        In the transaction that received it, once your writes are rolled back to a savepoint; after BEHIND; or in a new
        one. If another transaction has received it, nothing is written.
        """
        return run(conn, defer(self.consumer, message_id, payload, tenant=self.tenant, **options))

    async def adefer(self, conn: Any, message_id: str, payload: Any, **options: Unpack[DeferOptions]) -> Deferred:
        """`defer` for an asynchronous connection."""
        return await arun(conn, defer(self.consumer, message_id, payload, tenant=self.tenant, **options))
