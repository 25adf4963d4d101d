"""What a transport or a source may say of its broker: settings that break a guarantee (`redrive doctor`)."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable


class BrokerRisk(NamedTuple):
    """detail: the setting, and what it may cost. next: the remedy."""

    detail: str
    next: str


@runtime_checkable
class ChecksBroker(Protocol):
    """Optional for transports and sources. A text `broker_is_well` says what it means that there is no risk."""

    async def broker_risks(self, *, inbox_seconds: float | None) -> Sequence[BrokerRisk]:
        """Asks the broker, and changes nothing there. Raises what the connection raises. inbox_seconds: how long the
        inbox remembers what was received; None = for good."""
