"""What `redrive prove payments` has shown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from redrive.kit.proof.report import ProofReport, bound, table

BEYOND = "beyond: "
IN_HISTORIES = "histories: "


@dataclass(frozen=True, kw_only=True)
class PaymentsReport(ProofReport):
    """counts: of the first run; others begin with `BEYOND` or `IN_HISTORIES`."""

    proof = "payments"
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def figures(self) -> Iterator[str]:
        within = {name: count for name, count in self.counts.items() if not name.startswith((BEYOND, IN_HISTORIES))}
        if within:
            yield from table("Rails with token and lookup, late within lookup_after", within)
            yield from table("A rail that forgets tokens, late beyond lookup_after", self._of(BEYOND))
        if self._of(IN_HISTORIES):
            yield from table("Random histories", self._of(IN_HISTORIES))
        for name, values in self.settings.items():
            yield ""
            yield f"Settings, {name}: " + ", ".join(f"{key} {value}" for key, value in values.items())

    def _of(self, prefix: str) -> dict[str, int]:
        return {name.removeprefix(prefix): count for name, count in self.counts.items() if name.startswith(prefix)}

    def verdict(self) -> Iterator[str]:
        if "payments" in self.counts:
            yield "Every instruction has one effect in the rails' ledgers, to the cent, in its participant's order and"
            yield "without gaps; the books agree, nothing is open, and what only a person can judge is held."
        if count := self._of(IN_HISTORIES).get("histories"):
            yield (
                f"No violation in {count} random histories: at 95 % confidence fewer than {bound(count):.2%} of such"
                " histories pay twice."
            )
