"""Whether an outbox is well: its numbers against the thresholds of its options. Pure (T-05)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from redrive.systems.tenant.options import OutboxOptions
from redrive.systems.tenant.reads import Numbers


class Verdict(StrEnum):
    """degraded: it works, and falls behind. unhealthy: a person should look now."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    UNHEALTHY = "unhealthy"


_ORDER = tuple(Verdict)


@dataclass(frozen=True, slots=True)
class Check:
    """limit: the threshold that the value has reached; None where it has reached none."""

    name: str
    value: float
    verdict: Verdict
    limit: float | None = None

    @property
    def reason(self) -> str:
        return "" if self.limit is None else f"{self.name} is {self.value:g}, at or above {self.limit:g}"


@dataclass(frozen=True, slots=True)
class Health:
    verdict: Verdict
    checks: Sequence[Check]

    @property
    def reasons(self) -> list[str]:
        return [check.reason for check in self.checks if check.reason]


def judge(numbers: Numbers, options: OutboxOptions) -> Health:
    checks = [
        _check("backlogSize", numbers.backlog_size, options.backlog_degraded, options.backlog_unhealthy),
        _check(
            "oldestAgeSeconds",
            numbers.oldest_age_seconds,
            options.oldest_age_degraded_seconds,
            options.oldest_age_unhealthy_seconds,
        ),
        _check("failureRatio", numbers.failure_ratio, options.failure_ratio_degraded, options.failure_ratio_unhealthy),
        # What was given up delays nothing, and waits for a person.
        _check("deadLetters", numbers.dead_letters, 1, None),
    ]
    return Health(max((check.verdict for check in checks), key=_ORDER.index), checks)


def _check(name: str, value: float, degraded: float, unhealthy: float | None) -> Check:
    if unhealthy is not None and value >= unhealthy:
        return Check(name, value, Verdict.UNHEALTHY, unhealthy)
    if value >= degraded:
        return Check(name, value, Verdict.DEGRADED, degraded)
    return Check(name, value, Verdict.HEALTHY)
