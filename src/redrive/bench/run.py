"""Run workloads several times, take medians, report them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from redrive.bench.database import one_row
from redrive.bench.workloads import Rates, Workload


@dataclass(frozen=True)
class Measured:
    """Medians of the rates and of the ratios, and how far the ratios lie apart."""

    workload: Workload
    rates: Rates
    ratio: float
    ratio_low: float
    ratio_high: float

    def as_json(self) -> dict[str, object]:
        return {
            "workload": self.workload.name,
            "title": self.workload.title,
            "unit": self.workload.unit,
            "values": {name: round(rate, 1) for name, rate in self.rates.items()},
            "figure": self.workload.figure,
            "reference": self.workload.reference,
            "ratio": round(self.ratio, 3),
            "ratio_low": round(self.ratio_low, 3),
            "ratio_high": round(self.ratio_high, 3),
            "aim": self.workload.aim,
        }


def measure(
    server_dsn: str, workloads: Sequence[Workload], *, repeat: int, scale: float, tell: Callable[[str, int, int], None]
) -> list[Measured]:
    """tell: what is measured, how many runs are done, of how many."""
    measured = []
    for workload in workloads:
        runs = []
        for turn in range(repeat):
            tell(f"{workload.name} {workload.title}", turn, repeat)
            runs.append(workload.measure(server_dsn, scale))
        tell(f"{workload.name} {workload.title}", repeat, repeat)
        measured.append(_summed_up(workload, runs))
    return measured


def _summed_up(workload: Workload, runs: Sequence[Rates]) -> Measured:
    ratios = [run[workload.figure] / run[workload.reference] for run in runs]
    rates = {name: median(run[name] for run in runs) for name in runs[0]}
    return Measured(workload, rates, median(ratios), min(ratios), max(ratios))


def server_facts(server_dsn: str) -> dict[str, str]:
    names = ("server_version", "shared_buffers", "max_wal_size", "fsync", "synchronous_commit")
    row = one_row(server_dsn, "SELECT " + ", ".join(f"current_setting('{name}')" for name in names))
    return dict(zip(names, map(str, row), strict=True))
