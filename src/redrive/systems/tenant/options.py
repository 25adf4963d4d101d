"""`OutboxOptions`: what an outbox can be told, with defaults and bounds (T-03).

Each option has two names: `poll_interval_seconds` in Python, and `PollIntervalSeconds`, which `redrive.toml` and
mappings take too. A refusal has both names, the value and the bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from random import Random
from typing import Any, Final, Self

from redrive import Backoff, Policy
from redrive.errors import SettingsError

DELAY_SECONDS_MAX: Final = 3600.0


def _option(name: str, default: Any, low: float, high: float, **more: Any) -> Any:
    """name: as in `PollIntervalSeconds`. low, high: both included."""
    return field(default=default, metadata={"name": name, "low": low, "high": high, **more})


@dataclass(frozen=True, kw_only=True)
class OutboxOptions:
    """poll_interval_seconds: longest pause between two looks for events. batch_size: most events that a relay claims
    at once. max_retries: attempts, the first included. base_retry_delay_seconds: after the first failure; doubled after
    each further one where use_exponential_backoff, and never over an hour. jitter: share by which a delay varies.
    max_error_text_length: characters of a failure that are kept.

    window_seconds: over which throughput and failure ratio are counted. old_failure_retries: from so many failures on
    an unprocessed event counts as an old failure. prometheus_enabled: whether relays show the metrics.
    summary_every_cycles: OUTBOX_WORKER_SUMMARY is logged after so many looks that found events; 0 = never.

    backlog_…, oldest_age_…, failure_ratio_…: from these values on the outbox is degraded, or unhealthy.
    """

    poll_interval_seconds: float = _option("PollIntervalSeconds", 5.0, 1, 300)
    batch_size: int = _option("BatchSize", 100, 1, 1000)
    max_retries: int = _option("MaxRetries", 5, 1, 100)
    base_retry_delay_seconds: float = _option("BaseRetryDelaySeconds", 10.0, 0, 3600)
    use_exponential_backoff: bool = _option("UseExponentialBackoff", True, 0, 1)
    jitter: float = _option("Jitter", 0.2, 0, 1)
    max_error_text_length: int = _option("MaxErrorTextLength", 2000, 100, 65_536)
    window_seconds: float = _option("WindowSeconds", 300.0, 10, 86_400)
    old_failure_retries: int = _option("OldFailureRetries", 3, 1, 100)
    prometheus_enabled: bool = _option("PrometheusEnabled", True, 0, 1)
    summary_every_cycles: int = _option("SummaryEveryCycles", 100, 0, 1_000_000)
    backlog_degraded: int = _option("BacklogDegraded", 1000, 1, 1_000_000_000)
    backlog_unhealthy: int = _option("BacklogUnhealthy", 10_000, 1, 1_000_000_000)
    oldest_age_degraded_seconds: float = _option("OldestAgeDegradedSeconds", 300.0, 1, 2_592_000)
    oldest_age_unhealthy_seconds: float = _option("OldestAgeUnhealthySeconds", 3600.0, 1, 2_592_000)
    failure_ratio_degraded: float = _option("FailureRatioDegraded", 0.2, 0.001, 1)
    failure_ratio_unhealthy: float = _option("FailureRatioUnhealthy", 0.5, 0.001, 1)

    def __post_init__(self) -> None:
        for one in fields(self):
            _check(one.name, one.metadata, type(one.default), getattr(self, one.name))
        for measure in ("backlog", "oldest_age", "failure_ratio"):
            unit = "_seconds" if measure == "oldest_age" else ""
            degraded, unhealthy = f"{measure}_degraded{unit}", f"{measure}_unhealthy{unit}"
            if getattr(self, degraded) > getattr(self, unhealthy):
                raise SettingsError(
                    f"{_both(degraded)} is {getattr(self, degraded):g}, above {_both(unhealthy)}"
                    f" ({getattr(self, unhealthy):g}).",
                    next="an outbox is degraded before it is unhealthy: lower the first or raise the second",
                )

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """From names of either kind, `PollIntervalSeconds` or `poll_interval_seconds`."""
        known = {one.metadata["name"]: one.name for one in fields(cls)} | {one.name: one.name for one in fields(cls)}
        for name in values:
            if name not in known:
                near = get_close_matches(name, known, n=1)
                said = f"did you mean {near[0]}?" if near else f"known are: {', '.join(NAMES.values())}"
                raise SettingsError(f"There is no outbox option {name!r}.", next=said)
            if name != known[name] and known[name] in values:
                raise SettingsError(f"{_both(known[name])} is given by both of its names; leave one out.")
        return cls(**{known[name]: value for name, value in values.items()})

    def documented(self) -> dict[str, Any]:
        """By names such as `PollIntervalSeconds`."""
        return {NAMES[one.name]: getattr(self, one.name) for one in fields(self)}

    @property
    def backoff(self) -> Backoff:
        return Backoff(
            initial_seconds=self.base_retry_delay_seconds,
            multiplier=2.0 if self.use_exponential_backoff else 1.0,
            max_seconds=DELAY_SECONDS_MAX,
            jitter=self.jitter or "none",
        )

    @property
    def policy(self) -> Policy:
        return Policy(attempts=self.max_retries, backoff=self.backoff)

    def delay_seconds(self, failures: int, random: Random) -> float:
        """The pause after so many failures (1 = the first)."""
        return self.backoff.delay_seconds(failures, random)


NAMES: Final[Mapping[str, str]] = {one.name: one.metadata["name"] for one in fields(OutboxOptions)}


def _both(name: str) -> str:
    return f"{NAMES[name]} ({name})"


def _check(name: str, bounds: Mapping[str, Any], kind: type, value: Any) -> None:
    if kind is bool:
        if type(value) is not bool:
            raise SettingsError(f"{_both(name)} is {value!r}; it must be true or false.")
        return
    whole = kind is int
    fits = type(value) is int if whole else type(value) in (int, float)
    if not fits or not bounds["low"] <= value <= bounds["high"]:
        number = "a whole number" if whole else "a number"
        raise SettingsError(
            f"{_both(name)} is {value!r}; it must be {number} from {bounds['low']:,} to {bounds['high']:,}."
        )
