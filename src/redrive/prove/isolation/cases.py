"""Every case, in the order in which they are run."""

from __future__ import annotations

from typing import Final

from redrive.prove.isolation import (
    cancel,
    claims,
    clock,
    hostile_peers,
    limit_keys,
    open_transaction,
    partitions,
    rate,
    suspects,
    upkeep,
)
from redrive.prove.isolation.case import Case

CASES: Final[dict[str, Case]] = {
    case.name: case
    for case in (
        open_transaction.CASE,
        cancel.CASE,
        suspects.CASE,
        limit_keys.CASE,
        hostile_peers.CASE,
        partitions.CASE,
        clock.CASE,
        rate.CASE,
        claims.CASE,
        upkeep.CASE,
    )
}
