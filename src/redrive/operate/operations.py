"""What an operator can see, and the checks before a skip: the one layer under command line, API and console."""

from redrive.errors import ActRefused, NotFound
from redrive.message import ParkReason
from redrive.store.reads.keys import list_keys, show_key
from redrive.store.reads.messages import (
    knows_destination,
    list_destinations,
    list_messages,
    list_parked,
    proofs,
    show_message,
    show_parked,
)
from redrive.store.reads.models import KeyView
from redrive.store.reads.status import status
from redrive.store.runtime.open_store import explained, opened
from redrive.store.runtime.postgres import PostgresStore
from redrive.who import Who

__all__ = [
    "explained",
    "find_head",
    "list_destinations",
    "list_keys",
    "list_messages",
    "list_parked",
    "opened",
    "require_known",
    "show_message",
    "show_parked",
    "skip",
    "status",
]


async def find_head(store: PostgresStore, tenant: str, order_by: str, *, sequence: int | None = None) -> KeyView:
    found = await show_key(store, tenant, order_by)
    if found is None:
        raise ActRefused(f"Ordering key {order_by!r}: nothing of it waits.", next="redrive keys list")
    if found.state == "in_flight":
        raise ActRefused(
            f"Ordering key {order_by!r}: its head, number {found.sequence}, is being sent just now.",
            next="try again when it has come back",
        )
    if sequence not in (None, found.sequence):
        raise ActRefused(
            f"Ordering key {order_by!r}: its head is number {found.sequence}, not {sequence}; nothing was skipped.",
            next="redrive keys skip … --dry-run",
        )
    proven = [proof for proof in (await proofs(store, [found.head])).get(found.head, ()) if proof.counts]
    if proven and found.state != ParkReason.UNRECORDED:
        raise ActRefused(
            f"Ordering key {order_by!r}: something says that its head was delivered ({proven[0]}); skip is refused.",
            next=f"redrive held confirm {found.head} --reference {proven[0].reference or '…'}",
        )
    return found


async def skip(store: PostgresStore, head: KeyView, who: Who) -> None:
    await store.skip(head.tenant, head.order_by, sequence=head.sequence, actor=who.actor, reason=who.reason)


async def require_known(store: PostgresStore, destination: str) -> None:
    """Raises NotFound for a destination that was never registered and has nothing open."""
    if not await knows_destination(store, destination):
        raise NotFound(f"There is no destination {destination!r}.", next="redrive destinations list")
