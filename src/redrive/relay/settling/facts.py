"""The events that say what became of a message."""

from redrive.events import Events
from redrive.policy import SettlementKind
from redrive.ports import Outcome

FACTS = (
    "message.delivered",
    "message.closed",
    "message.advanced",
    "message.retried",
    "message.parked",
    "message.refused",
)
_FACT = {
    SettlementKind.CLOSE: "message.closed",
    SettlementKind.ADVANCE: "message.advanced",
    SettlementKind.RETRY: "message.retried",
    SettlementKind.PARK: "message.parked",
    SettlementKind.HAND_BACK: "message.handed_back",
}


def tell(events: Events, outcome: Outcome, *, refused: bool = False) -> None:
    name = "message.refused" if refused else _FACT[outcome.settlement.kind]
    if name == "message.closed" and outcome.settlement.closed == "delivered":
        name = "message.delivered"
    if events.wants(name):
        settlement = outcome.settlement
        events.emit(
            name,
            id=outcome.attempt.id,
            destination=outcome.attempt.destination,
            tenant=outcome.attempt.tenant,
            kind=outcome.attempt.kind,
            key=outcome.attempt.key,
            attempt=outcome.attempt.number,
            spent=settlement.spent,
            code=settlement.error_class,
            delay_seconds=settlement.delay_seconds,
            in_doubt=settlement.in_doubt,
            reason=settlement.park_reason and settlement.park_reason.value,
            latency_ms=outcome.latency_ms,
            age_seconds=_age_seconds(outcome),
        )


def _age_seconds(outcome: Outcome) -> float:
    """From enqueue to now: by the database's clock up to the claim, then by ours."""
    attempt = outcome.attempt
    return max(0.0, (attempt.claimed_at - attempt.created_at).total_seconds() + (outcome.latency_ms or 0) / 1000)
