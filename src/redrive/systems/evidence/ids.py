"""Ids of jobs, rows and artifacts: UUIDs of version 7, so that the newest are read first by the primary key."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from uuid import UUID


def ascending_ids() -> Iterator[UUID]:
    """Ids that begin at the present millisecond with 72 random bits, and ascend."""
    first = (time.time_ns() // 1_000_000) << 80 | 7 << 76 | secrets.randbits(12) << 64 | 2 << 62 | secrets.randbits(60)
    number = 0
    while True:
        yield UUID(int=first + number)
        number += 1
