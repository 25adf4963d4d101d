"""What the engine needs from outside, as types: a transport, a store, a clock.

`PostgresStore` implements `Store`, and so does the model store of the tests; one conformance suite checks both. Every
verb is one short transaction; `now` is None for the database's clock, and only tests pass anything else.
"""

from typing import Protocol

from redrive.ports.acts import OperatorVerbs
from redrive.ports.claims import Claimed, ClaimRequest, ClaimState, ClaimVerbs, LowWaterMark, Place, PutOff
from redrive.ports.clock import Clock, ClockLook, ClockVerbs, Now, Redated
from redrive.ports.destinations import Booked, DestinationState, DestinationVerbs, LimitKeyState, Opened
from redrive.ports.duties import Asked, DutyVerbs, MendedLanes, Reaped, duty_hold_seconds
from redrive.ports.failures import NotBegun, RecordFailed, RecordWaits, TransientFailure
from redrive.ports.relays import (
    Heard,
    ListenConnection,
    RelayInfo,
    RelayVerbs,
    RestoredDestination,
    Sent,
    Wal,
    Witnessed,
    address_refused,
)
from redrive.ports.settling import HandOver, Outcome, Record, Settled, SettleVerbs
from redrive.ports.transports import Transport

# fmt: off
__all__ = [
    "Asked", "Booked", "ClaimRequest", "ClaimState", "ClaimVerbs", "Claimed", "Clock", "ClockLook", "ClockVerbs",
    "DestinationState", "DestinationVerbs", "DutyVerbs", "HandOver", "Heard", "LimitKeyState", "ListenConnection",
    "LowWaterMark", "MendedLanes", "NotBegun", "Now", "Opened", "OperatorVerbs", "Outcome", "Place", "PutOff", "Reaped",
    "Record", "RecordFailed", "RecordWaits", "Redated", "RelayInfo", "RelayVerbs", "RestoredDestination", "Sent",
    "SettleVerbs", "Settled", "Store", "TransientFailure", "Transport", "Wal", "Witnessed", "address_refused",
    "duty_hold_seconds",
]
# fmt: on


class Store(ClaimVerbs, SettleVerbs, DestinationVerbs, RelayVerbs, DutyVerbs, ClockVerbs, OperatorVerbs, Protocol):
    """A verb either happens as a whole or not at all."""
