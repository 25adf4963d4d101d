"""Outcomes by name, so that a failing example of the state machine reads as a story."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from redrive.answers import Unknown
from redrive.message import Attempt, Closed, ParkReason
from redrive.policy import Settlement, SettlementKind
from redrive.ports import Outcome
from tests.conformance.steps import advanced, delivered, parked, retried


def _lookup_again(attempt: Attempt) -> Outcome:
    settlement = Settlement(
        kind=SettlementKind.RETRY,
        answer=Unknown("LOOKUP_CANNOT_TELL", from_lookup=True),
        error_class="LOOKUP_CANNOT_TELL",
        spent=attempt.spent,
        lookups=attempt.lookups + 1,
        delay_seconds=5,
        in_doubt=True,
    )
    return Outcome(attempt=attempt, settlement=settlement)


def _ended(closed: Closed) -> Callable[[Attempt], Outcome]:
    def outcome(attempt: Attempt) -> Outcome:
        settlement = Settlement(
            kind=SettlementKind.CLOSE, closed=closed, spent=attempt.spent, in_doubt=attempt.in_doubt
        )
        return Outcome(attempt=attempt, settlement=settlement)

    return outcome


def _dead_in_doubt(attempt: Attempt) -> Outcome:
    outcome = parked(attempt)
    settlement = replace(outcome.settlement, in_doubt=True, exhausted=True, lookups=attempt.lookups)
    return replace(outcome, settlement=settlement)


OUTCOMES: Final[Mapping[str, Callable[[Attempt], Outcome]]] = {
    "delivered": lambda a: delivered(a, reference="m-1"),
    "delivered with a result": lambda a: delivered(a, result={"n": [1, None]}),
    "retry": retried,
    "retry later": lambda a: retried(a, delay_seconds=12.5),
    "retry long after": lambda a: retried(a, delay_seconds=300),
    "retry in doubt": lambda a: retried(a, in_doubt=True, delay_seconds=3, lookups=a.lookups),
    "retry in doubt after absent": lambda a: retried(replace(a, in_doubt_since=None), in_doubt=True),
    "destination down": lambda a: retried(a, down=True, delay_seconds=1),
    "look up again": _lookup_again,
    "advance": lambda a: advanced(a, "second", result={"stage": a.stage}),
    "advance elsewhere": lambda a: advanced(a, "third", destination="bank"),
    "dead": parked,
    "dead, but its key goes on": lambda a: parked(a, halts=False),
    "dead in doubt": _dead_in_doubt,
    "held": lambda a: parked(a, ParkReason.HELD),
    "unrecorded": lambda a: parked(a, ParkReason.UNRECORDED),
    "cancelled": _ended(Closed.CANCELLED),
    "expired": _ended(Closed.EXPIRED),
}
