"""Every case, in the order in which they are run."""

from __future__ import annotations

from typing import Final

from redrive.prove.isolation import cancel, claims, clock, from, hostile_peers, import, isolation, limit_keys, limits, open_transaction, partitions, prove, rate, redrive, suspects, upkeep
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
        from.CASE,
        import.CASE,
        isolation.CASE,
        limits.CASE,
        prove.CASE,
        redrive.CASE,
    )
}
