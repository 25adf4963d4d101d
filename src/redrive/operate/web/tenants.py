"""Reduces a Status to one tenant. Findings are made afterwards, so that none speaks of another tenant."""

from dataclasses import replace

from redrive.operate.web.principal import Principal
from redrive.store.reads.status import Backlog, Status


def status_for(principal: Principal, status: Status) -> Status:
    """The tenant's backlog, without relays, workers, sessions and operators' reasons."""
    if principal.all_tenants:
        return status
    return replace(
        status,
        backlog=[replace(one, pause_reason=None, breaker_code=None) for one in status.backlog if _has_any(one)],
        relays=[],
        workers=[],
        consumers=[],
        duties=[],
        late_answers=0,
        lanes_mended=0,
        oldest_holder=None,
        clock_jumps=[],
    )


def _has_any(backlog: Backlog) -> bool:
    return bool(backlog.pending or backlog.leased or any(backlog.parked.values()))
