"""A worker as the database knows it, without a process."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from redrive.message import WorkerId
from redrive.ports.workers import ConsumerReport, WorkerInfo

INFO: Final = WorkerInfo(WorkerId(UUID(int=77)), "worker-1", "app-1", 4711, "0.1.0")
OTHER: Final = WorkerInfo(WorkerId(UUID(int=78)), "worker-2", "app-2", 4712, "0.1.0")
BILLING: Final = ConsumerReport(
    name="billing",
    is_connected=True,
    in_hand=3,
    oldest_seconds=1.5,
    ended_seconds=0.25,
    received=40,
    processed=36,
    deferred=1,
    seen=0,
    given_back=0,
)
