"""The story of the demo: three shops, their orders, and what their subscribers do with the events. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from redrive.systems.tenant.event_types import EventTypes, Version
from redrive.systems.tenant.options import OutboxOptions
from redrive.systems.tenant.writer import Event

EVENT_TYPE: Final = "OrderPlaced"
TYPES: Final = EventTypes()
TYPES.declare(EVENT_TYPE, category="order", by=Version())
OPTIONS: Final = OutboxOptions(
    poll_interval_seconds=1, max_retries=20, base_retry_delay_seconds=0.5, use_exponential_backoff=False
)

BAKERY, GARAGE, CINEMA = "bakery", "garage", "cinema"
TENANTS: Final = {BAKERY: "Morgenrot Bakery", GARAGE: "Sunset Garage", CINEMA: "Pearl Cinema"}
DOWN, UP, GONE = 503, 204, 410  # what a subscriber answers


@dataclass(frozen=True, slots=True)
class Order:
    """name: within its tenant and one run of the demo. ends: delivered, or dead."""

    tenant: str
    name: str
    total: str
    ends: str = "delivered"

    def entity(self, run: int) -> str:
        """Each run has orders of its own: an event is added once for ever."""
        return f"{self.name}-{run}"

    def event(self, run: int) -> Event:
        payload = {"order": self.entity(run), "total": self.total}
        return Event(EVENT_TYPE, payload, parts={"entity": self.entity(run), "version": 1})


BREAD: Final = Order(BAKERY, "bread", "12.40")
ROLLED_BACK: Final = Order(BAKERY, "cake", "38.00")
TYRES: Final = (Order(GARAGE, "tyres", "480.25"), Order(GARAGE, "oil", "62.00"), Order(GARAGE, "wipers", "18.90"))
ROLLS: Final = Order(BAKERY, "rolls", "4.20")
TICKETS: Final = Order(CINEMA, "tickets", "25.00", ends="dead")
ADDED: Final = (BREAD, *TYRES, ROLLS, TICKETS)
