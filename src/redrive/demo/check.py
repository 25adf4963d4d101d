"""Did the demo keep its promise? Judged by the shop's tables and the destinations' ledgers, not by the engine."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Sent:
    order: int
    message: UUID
    destination: str
    state: str
    reason: str | None


def violations(sent: Sequence[Sent], ledgers: Mapping[str, Iterable[str]]) -> list[str]:
    """ledgers: the tokens that each destination has."""
    counts = {name: Counter(tokens) for name, tokens in ledgers.items()}
    found = [problem for message in sent if (problem := _problem(message, counts))]
    known = {str(message.message) for message in sent}
    for name, tokens in counts.items():
        found += [f"{name} received {token}, which no order asked for." for token in tokens if token not in known]
    return found


def _problem(message: Sent, counts: Mapping[str, Counter[str]]) -> str | None:
    times = counts[message.destination][str(message.message)]
    about = f"Order {message.order}, {message.destination} ({message.message})"
    if message.state == "delivered" and times != 1:
        return f"{about} is delivered, and its ledger has it {times} times."
    if message.state == "parked" and times:
        return f"{about} is parked as {message.reason}, and its ledger has it {times} times."
    if message.state not in ("delivered", "parked"):
        return f"{about} is {message.state}; it should be delivered or parked."
    return None
