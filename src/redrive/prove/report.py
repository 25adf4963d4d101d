"""What `redrive prove engine` has shown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from redrive.kit.proof.report import ProofReport, bound, table
from redrive.prove import config

if TYPE_CHECKING:
    from redrive.prove.histories.engine import Histories

_BUDGETS = ("attempts_max", "lookups_max", "crashes_max", "timeout_seconds", "lookup_after_seconds")


@dataclass(frozen=True, kw_only=True)
class Report(ProofReport):
    """faults: how many of each kind. points: failpoints and how often each was met. quiet_seconds: from the last
    fault until nothing was open; quiet_seconds_max: so long nothing may have moved in it. histories, told: of
    random histories. waits: in seconds, of messages of their healthy destination."""

    proof = "engine"
    config: Mapping[str, Any]
    quiet_seconds: float = 0.0
    quiet_seconds_max: float = 0.0
    faults: Mapping[str, int] = field(default_factory=dict)
    destination_faults: Mapping[str, int] = field(default_factory=dict)
    points: Mapping[str, int] = field(default_factory=dict)
    histories: Mapping[str, int] = field(default_factory=dict)
    waits: Mapping[str, float] = field(default_factory=dict)
    told: Sequence[str] = ()

    @property
    def injected(self) -> int:
        """Faults after which something could have been lost."""
        return sum(self.faults.values())

    @property
    def bound(self) -> float:
        return 3 / max(self.injected, 1)

    def document(self) -> dict[str, Any]:
        return {**super().document(), "injected": self.injected, "bound": self.bound}

    def figures(self) -> Iterator[str]:
        if self.points:
            yield from self._campaign()
        if self.histories:
            yield from self._histories()

    def _campaign(self) -> Iterator[str]:
        yield from table("Messages and requests", self.counts)
        yield from table("Faults injected", self.faults)
        yield from table("Faults of the destination", self.destination_faults)
        yield from self._points()
        yield from self._settings()
        yield ""
        yield (
            f"Quiet {self.quiet_seconds:.1f} s after the last fault and the last message"
            f" (at most {self.quiet_seconds_max:.0f} s without an attempt that ends are allowed)."
        )

    def _histories(self) -> Iterator[str]:
        yield from table("Random histories", self.histories)
        yield ""
        yield "How long messages of a healthy destination waited in them"
        yield from (f"  {seconds:8.2f} s  {what}" for what, seconds in self.waits.items())
        yield from (f"  {line}" for line in self.told)

    def _points(self) -> Iterator[str]:
        met = sum(count > 0 for count in self.points.values())
        times = sum(self.points.values())
        yield ""
        yield f"Step boundaries at which a relay was killed: {met} of {len(self.points)}, {times} times"
        yield from (f"  {name} was never met" for name, count in self.points.items() if not count)

    def _settings(self) -> Iterator[str]:
        yield ""
        yield "Relays: " + ", ".join(f"{name} {value:g}" for name, value in self.config["limits"].items())
        yield "Destinations: " + ", ".join(f"{name} {self.config[name]:g}" for name in _BUDGETS)

    def verdict(self) -> Iterator[str]:
        if self.injected:
            yield f"No violation in {self.injected} faults: at 95 % confidence fewer than {self.bound:.2%} do harm."
        if count := self.histories.get("histories"):
            yield (
                f"No violation in {count} random histories: at 95 % confidence fewer than {bound(count):.2%} have one."
            )


def with_histories(ran: Report, told: Histories, *, seconds: float) -> Report:
    return replace(
        ran,
        seconds=seconds,
        violations=[*ran.violations, *told.violations],
        histories=told.counts(),
        waits=told.figures(),
        told=list(told.lines()),
    )


def of_histories(told: Histories, *, seed: int, scale: float, seconds: float) -> Report:
    empty = Report(
        seed=seed,
        scale=scale,
        server=told.server,
        config={**config.DEFAULT.printed(), "limits": dict(told.limits)},
        seconds=seconds,
        counts={},
    )
    return with_histories(empty, told, seconds=seconds)
