"""What `redrive prove brokers` has shown, broker by broker."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from redrive.kit.proof.report import ProofReport, bound, table


@dataclass(frozen=True, kw_only=True)
class BrokersReport(ProofReport):
    """brokers: what happened with each. faults: how many of each kind, with each."""

    proof = "brokers"
    brokers: Mapping[str, Mapping[str, int]]
    faults: Mapping[str, Mapping[str, int]]

    @property
    def injected(self) -> int:
        return sum(sum(kinds.values()) for kinds in self.faults.values())

    @property
    def command(self) -> str:
        return " ".join([super().command, *(f"--broker {name}" for name in self.brokers)])

    def document(self) -> dict[str, Any]:
        return {**super().document(), "injected": self.injected, "bound": bound(self.injected)}

    def figures(self) -> Iterator[str]:
        for name, counts in self.brokers.items():
            yield from table(f"{name}: messages", counts)
            yield from table(f"{name}: faults", self.faults[name])

    def verdict(self) -> Iterator[str]:
        messages, faults = self.counts["messages"], self.injected
        yield "Nothing was lost, doubled, overtaken or left over."
        yield f"No violation in {faults} faults: at 95 % confidence fewer than {bound(faults):.2%} do harm."
        yield f"No violation in {messages:,} messages: at 95 % confidence fewer than {bound(messages):.3%} meet one."
