"""Where a consumer receives its messages from: a broker, or a script in tests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Delivery:
    """One message as the broker delivered it.

    id: the broker's own, such as stream and sequence; used where the message has none of its own. order_by: the
    broker's ordering key; used where the message cannot be read. handle: for the source alone.
    """

    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = ""
    id: str
    order_by: str | None = None
    handle: Any = None


class Source(Protocol):
    """Delivers at least once, in the broker's order. What was neither acknowledged nor given back comes again by
    itself, when the broker has noticed that its receiver is gone. Used by one worker."""

    async def receive(self, limit: int, /) -> Sequence[Delivery]:
        """The next messages, at most `limit`; after about a second without one an empty list. May be cancelled."""

    async def ack(self, delivery: Delivery, /) -> None:
        """The effect is committed: the broker may forget the message."""

    async def give_back(self, delivery: Delivery, /) -> None:
        """Not processed: the broker may deliver it again, here or to another worker."""

    async def aclose(self) -> None:
        """Close the connection; what was received and not acknowledged comes again."""
