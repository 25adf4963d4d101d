"""The life of an artifact (E-09): `attachment_status` and `retry_status`, and which event leads from where to where.

One table. `redrive_evidence.transitions()` has the same edges, a trigger refuses every other change, and tests compare
the two and try all pairs.

    untried ──attached──▶ ATTACHED                          FAILED/RETRYING ──attached──▶ ATTACHED/RETRY_SUCCESS
    untried ──failed──▶ FAILED/RETRY_FAILED ──requeued──▶ FAILED/RETRY_SCHEDULED ──begun──▶ FAILED/RETRYING
    each but ATTACHED ──gave_up──▶ FAILED/PERMANENT_FAILED
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple


class Attachment(StrEnum):
    PENDING = "PENDING"
    ATTACHED = "ATTACHED"
    FAILED = "FAILED"


class Retry(StrEnum):
    PENDING = "PENDING"
    RETRY_SCHEDULED = "RETRY_SCHEDULED"
    RETRYING = "RETRYING"
    RETRY_SUCCESS = "RETRY_SUCCESS"
    RETRY_FAILED = "RETRY_FAILED"
    PERMANENT_FAILED = "PERMANENT_FAILED"


class Event(StrEnum):
    """begun: an attempt begins. failed: and another may follow. gave_up: no attempt follows (a permanent error, the
    last failure, the deadline, or a case that is gone).
    """

    BEGUN = "begun"
    ATTACHED = "attached"
    FAILED = "failed"
    REQUEUED = "requeued"
    GAVE_UP = "gave_up"


class Status(NamedTuple):
    attachment: Attachment
    retry: Retry


UNTRIED: Final = Status(Attachment.PENDING, Retry.PENDING)
DONE: Final = Status(Attachment.ATTACHED, Retry.PENDING)
RECOVERED: Final = Status(Attachment.ATTACHED, Retry.RETRY_SUCCESS)
WAITING: Final = Status(Attachment.FAILED, Retry.RETRY_FAILED)
SCHEDULED: Final = Status(Attachment.FAILED, Retry.RETRY_SCHEDULED)
RETRYING: Final = Status(Attachment.FAILED, Retry.RETRYING)
GIVEN_UP: Final = Status(Attachment.FAILED, Retry.PERMANENT_FAILED)
STATUSES: Final = (UNTRIED, DONE, RECOVERED, WAITING, SCHEDULED, RETRYING, GIVEN_UP)

TRANSITIONS: Final[Mapping[tuple[Status, Event], Status]] = MappingProxyType(
    {
        (UNTRIED, Event.BEGUN): UNTRIED,
        (UNTRIED, Event.ATTACHED): DONE,
        (UNTRIED, Event.FAILED): WAITING,
        (UNTRIED, Event.GAVE_UP): GIVEN_UP,
        (WAITING, Event.REQUEUED): SCHEDULED,
        (WAITING, Event.GAVE_UP): GIVEN_UP,
        # Its event was lost by the broker, or waits there for too long.
        (SCHEDULED, Event.REQUEUED): SCHEDULED,
        (SCHEDULED, Event.BEGUN): RETRYING,
        (SCHEDULED, Event.GAVE_UP): GIVEN_UP,
        (RETRYING, Event.ATTACHED): RECOVERED,
        (RETRYING, Event.FAILED): WAITING,
        (RETRYING, Event.GAVE_UP): GIVEN_UP,
    }
)


def after(status: Status, event: Event) -> Status | None:
    """None: the event cannot happen there."""
    return TRANSITIONS.get((status, event))
