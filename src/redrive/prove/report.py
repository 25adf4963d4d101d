"""What a proof has shown, for people and for programs: everything that is needed to judge it, and to run it again."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from redrive.prove import config

if TYPE_CHECKING:
    from redrive.prove.histories.engine import Histories


@dataclass(frozen=True, kw_only=True)
class Report:
    """faults: how many of each kind were injected. points: failpoints and how often each was met.

    violations: sentences with ids, and the scripts of histories; none is what we promise. quiet_seconds: from the last
    fault until nothing was open; quiet_seconds_max: so long nothing may have moved in it. histories: what was counted
    in random histories. waits: how long messages of the healthy destination waited in them, in seconds; told: the same
    for each history.
    """

    seed: int
    scale: float
    commit: str | None
    server: str
    config: Mapping[str, Any]
    seconds: float
    quiet_seconds: float
    quiet_seconds_max: float
    counts: Mapping[str, int]
    faults: Mapping[str, int]
    destination_faults: Mapping[str, int]
    points: Mapping[str, int]
    violations: Sequence[str] = field(default_factory=list)
    histories: Mapping[str, int] = field(default_factory=dict)
    waits: Mapping[str, float] = field(default_factory=dict)
    told: Sequence[str] = ()

    @property
    def ok(self) -> bool:
        return not self.violations

    @property
    def injected(self) -> int:
        """All faults of the engine's own side: those after which something could have been lost."""
        return sum(self.faults.values())

    @property
    def bound(self) -> float:
        """With no violation in n faults the rate is below 3/n, at 95 %."""
        return 3 / max(self.injected, 1)

    def document(self) -> dict[str, Any]:
        return {**asdict(self), "ok": self.ok, "injected": self.injected, "bound": self.bound}

    def lines(self) -> Iterator[str]:
        """For people."""
        commit = f", commit {self.commit}" if self.commit else ""
        yield f"redrive prove engine --seed {self.seed} --scale {self.scale:g}{commit}"
        yield f"{self.server}, {self.seconds:.0f} s"
        if self.points:
            yield from self._campaign()
        if self.histories:
            yield from self._histories()
        yield from self._verdict()

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
        met = [name for name, count in self.points.items() if count]
        yield ""
        times = sum(self.points.values())
        yield f"Step boundaries at which a relay was killed: {len(met)} of {len(self.points)}, {times} times"
        for name, count in self.points.items():
            if not count:
                yield f"  {name} was never met"

    def _settings(self) -> Iterator[str]:
        yield ""
        limits = ", ".join(f"{name} {value:g}" for name, value in self.config["limits"].items())
        yield f"Relays: {limits}"
        budgets = ", ".join(f"{name} {self.config[name]:g}" for name in _BUDGETS)
        yield f"Destinations: {budgets}"

    def _verdict(self) -> Iterator[str]:
        yield ""
        if self.ok:
            if self.injected:
                yield f"No violation in {self.injected} faults: at 95 % confidence fewer than {self.bound:.2%} do harm."
            if count := self.histories.get("histories"):
                bound = min(1.0, 3 / count)
                yield f"No violation in {count} random histories: at 95 % confidence fewer than {bound:.2%} have one."
            return
        yield f"{len(self.violations)} violations:"
        yield from (f"  {line}" for sentence in self.violations for line in sentence.splitlines())


def with_histories(ran: Report, told: Histories, *, seconds: float) -> Report:
    """The report of a campaign, and what came of random histories after it."""
    return replace(
        ran,
        seconds=seconds,
        violations=[*ran.violations, *("\n".join(one.lines()) for one in told.violated)],
        histories=told.counts(),
        waits=told.figures(),
        told=list(told.lines()),
    )


def of_histories(told: Histories, *, seed: int, scale: float, seconds: float) -> Report:
    """Of random histories alone."""
    empty = Report(
        seed=seed,
        scale=scale,
        commit=commit(),
        server=told.server,
        config={**config.DEFAULT.printed(), "limits": dict(told.limits)},
        seconds=seconds,
        quiet_seconds=0.0,
        quiet_seconds_max=0.0,
        counts={},
        faults={},
        destination_faults={},
        points={},
    )
    return with_histories(empty, told, seconds=seconds)


_BUDGETS = (
    "attempts_max",
    "lookups_max",
    "crashes_max",
    "timeout_seconds",
    "lookup_after_seconds",
)


def table(title: str, values: Mapping[str, int]) -> Iterator[str]:
    """Counts under a title."""
    yield ""
    yield title
    width = max((len(f"{value:,}") for value in values.values()), default=1)
    for name, value in values.items():
        yield f"  {value:>{width},}  {name}"


def commit() -> str | None:
    """The commit of the code that runs, where it runs from a repository."""
    try:
        done = subprocess.run(
            ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=12", "HEAD"],  # noqa: S607 - whichever git
            capture_output=True,
            text=True,
            timeout=5,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None
