"""The settings of evidence by their names in `redrive.toml` (E-04, E-11), with their defaults and bounds.

[evidence.evidence-retry]
max-attempts = 3                # the first attempt included
initial-delay = "5m"
multiplier = 2
max-delay = "60m"
jitter-pct = 0.2
batch_size_rows = 200
sleep_between_batches = ["2s", "5s"]
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from redrive.errors import InvalidValue

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_SPAN: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
ATTEMPTS_MAX: Final = 3  # as `is_retryable` of file_job_artifact has it
DAY_SECONDS: Final = 86_400.0


@dataclass(frozen=True, kw_only=True)
class EvidenceSettings:
    """max_attempts: of an artifact, the first one included; 1 to 3. Delays are those before a retry, 0 to 24 h.

    jitter_pct: 0.2 = between 80 % and 120 % of the delay. batch_size_rows: of the scheduler, 1 to 10,000.
    sleep_between_batches: from and to, in seconds. requeue_seconds: after which a retry event that led to no attempt is
    sent again. deadline_seconds: from N1 to N2 at the latest, and from the seal to N1. in_flight_seconds: how long
    attempts under way are awaited beyond the deadline. give_up_at_deadline: what is still open becomes
    PERMANENT_FAILED; False = N2 reports it as it is. scheduler_every_seconds, gates_every_seconds: of the duties.
    """

    max_attempts: int = 3
    initial_delay_seconds: float = 300.0
    multiplier: float = 2.0
    max_delay_seconds: float = 3600.0
    jitter_pct: float = 0.2
    batch_size_rows: int = 200
    sleep_between_batches_seconds: tuple[float, float] = (2.0, 5.0)
    requeue_seconds: float = 1800.0
    deadline_seconds: float = DAY_SECONDS
    in_flight_seconds: float = 900.0
    give_up_at_deadline: bool = True
    scheduler_every_seconds: float = 30.0
    gates_every_seconds: float = 30.0

    def __post_init__(self) -> None:
        bounds: Mapping[str, tuple[float, float]] = {
            "max_attempts": (1, ATTEMPTS_MAX),
            "initial_delay_seconds": (0, DAY_SECONDS),
            "multiplier": (1, 10),
            "max_delay_seconds": (0, DAY_SECONDS),
            "jitter_pct": (0, 0.5),
            "batch_size_rows": (1, 10_000),
            "requeue_seconds": (1, 7 * DAY_SECONDS),
            "deadline_seconds": (1, 30 * DAY_SECONDS),
            "in_flight_seconds": (0, DAY_SECONDS),
            "scheduler_every_seconds": (0.1, 3600),
            "gates_every_seconds": (0.1, 3600),
        }
        for name, (least, most) in bounds.items():
            _check(name, getattr(self, name), least, most)
        least, most = self.sleep_between_batches_seconds
        _check("sleep_between_batches (from)", least, 0, 3600)
        _check("sleep_between_batches (to)", most, least, 3600)
        if self.max_delay_seconds < self.initial_delay_seconds:
            raise InvalidValue("max-delay is below initial-delay; it must be at least as long.")

    def delay_seconds(self, attempt: int, rng: random.Random) -> float:
        """Before the attempt after this one: 5 minutes, then twice as long, plus or minus 20 %, and never above an
        hour."""
        delay = self.initial_delay_seconds * self.multiplier ** (attempt - 1)
        return min(delay * rng.uniform(1 - self.jitter_pct, 1 + self.jitter_pct), self.max_delay_seconds)

    def documented(self) -> Mapping[str, Any]:
        """By their names in `redrive.toml`, as they are printed."""
        least, most = self.sleep_between_batches_seconds
        return {
            "evidence-retry.max-attempts": self.max_attempts,
            "evidence-retry.initial-delay": f"{self.initial_delay_seconds:g}s",
            "evidence-retry.multiplier": self.multiplier,
            "evidence-retry.max-delay": f"{self.max_delay_seconds:g}s",
            "evidence-retry.jitter-pct": self.jitter_pct,
            "batch_size_rows": self.batch_size_rows,
            "sleep_between_batches": f"{least:g}–{most:g}s",
        }


_NAMES: Final[Mapping[str, str]] = {
    "max-attempts": "max_attempts",
    "initial-delay": "initial_delay_seconds",
    "multiplier": "multiplier",
    "max-delay": "max_delay_seconds",
    "jitter-pct": "jitter_pct",
    "batch_size_rows": "batch_size_rows",
    "sleep_between_batches": "sleep_between_batches_seconds",
}
_SPANS: Final = frozenset({"initial_delay_seconds", "max_delay_seconds"})


def read_settings(table: Mapping[str, Any]) -> EvidenceSettings:
    """`[evidence.evidence-retry]`, with `backoff` as a table too, or with the names of `EvidenceSettings`."""
    flat = {**{key: value for key, value in table.items() if key != "backoff"}, **_backoff(table)}
    own = {field.name for field in fields(EvidenceSettings)}
    values: dict[str, Any] = {}
    for key, value in flat.items():
        name = _NAMES.get(key, key)
        if name not in own:
            raise InvalidValue(f"There is no setting {key!r} in evidence-retry; it has {', '.join([*_NAMES, *own])}.")
        values[name] = _read(key, name, value)
    return EvidenceSettings(**values)


def _backoff(table: Mapping[str, Any]) -> Mapping[str, Any]:
    given = table.get("backoff", {})
    if not isinstance(given, Mapping):
        raise InvalidValue("backoff of evidence-retry must be a table.")
    if given.get("strategy", "exponential") != "exponential":
        raise InvalidValue(f'strategy of evidence-retry.backoff is {given["strategy"]!r}; it must be "exponential".')
    return {key: value for key, value in given.items() if key != "strategy"}


def _read(key: str, name: str, value: Any) -> Any:
    if name in _SPANS:
        return seconds_of(key, value)
    if name == "sleep_between_batches_seconds":
        both = value if isinstance(value, list) else [value, value]
        if len(both) != 2:
            raise InvalidValue(f'{key} is {value!r}; it must be one time, or two: ["2s", "5s"].')
        return tuple(seconds_of(key, one) for one in both)
    return value


def seconds_of(key: str, value: Any) -> float:
    """`"5m"`, or a number of seconds."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    found = _SPAN.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None:
        raise InvalidValue(f'{key} is {value!r}; it must be a time such as "5m" or "90s".')
    return float(found[1]) * _UNITS[found[2]]


def _check(name: str, value: Any, least: float, most: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise InvalidValue(f"{name} is {value!r}; it must be from {least:g} to {most:g}.")
