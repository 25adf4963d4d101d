"""How much one relay process takes on, and how it keeps time. Relations between the numbers are checked here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from redrive.errors import SettingsError

# A renewal is due every third of a lease: two may fail before the lease runs out.
RENEWALS_PER_LEASE: Final = 3
HEAL_SECONDS_MAX: Final = 120


@dataclass(frozen=True, kw_only=True)
class RelayLimits:
    """One relay process.

    lease_seconds: how long a claim lasts without renewal; 1 to 3,600.
    reap_every_seconds: how often claims that ran out are looked for; 0.1 to 600.
    concurrency: sends at a time over all destinations; 1 to 10,000.
    claim_max: messages in hand per destination; 1 to 5,000.
    poll_seconds: longest pause between two looks when there was nothing to do; 0.05 to 60.
    horizon_seconds: how far ahead of its free slots a relay claims, measured in observed latency; 0 to 10.
    record_timeout_seconds: for one `record`, and half a lease at most: a claim cannot be renewed while its record runs.
    stop_seconds: how long a stop waits for what runs; then it is cut off.
    heartbeat_seconds: how often a relay says that it lives and asks which destinations are paused.
    """

    lease_seconds: float = 60.0
    reap_every_seconds: float = 15.0
    concurrency: int = 100
    claim_max: int = 1000
    poll_seconds: float = 0.25
    horizon_seconds: float = 0.5
    record_timeout_seconds: float = 10.0
    stop_seconds: float = 20.0
    heartbeat_seconds: float = 5.0

    def __post_init__(self) -> None:
        for name, (low, high) in _BOUNDS.items():
            value = getattr(self, name)
            if not low <= value <= high:
                raise SettingsError(f"{name} is {value}; it must be between {low} and {high}.")
        if self.heartbeat_seconds >= self.lease_seconds:
            raise SettingsError(
                f"heartbeat_seconds ({self.heartbeat_seconds}) must be less than lease_seconds ({self.lease_seconds})."
            )

    @property
    def record_seconds(self) -> float:
        """How long a `record` gets: a lease that ran out meanwhile would be reaped, and the message sent again."""
        return min(self.record_timeout_seconds, self.lease_seconds / 2)

    @property
    def renew_every_seconds(self) -> float:
        return self.lease_seconds / RENEWALS_PER_LEASE

    @property
    def heals_within_seconds(self) -> float:
        """After a crash its messages are pending again within this time."""
        return self.lease_seconds + self.reap_every_seconds


_BOUNDS: Final = {
    "lease_seconds": (1, 3600),
    "reap_every_seconds": (0.1, 600),
    "concurrency": (1, 10_000),
    "claim_max": (1, 5000),
    "poll_seconds": (0.05, 60),
    "horizon_seconds": (0, 10),
    "record_timeout_seconds": (0.1, 600),
    "stop_seconds": (0, 3600),
    "heartbeat_seconds": (0.1, 300),
}
assert RelayLimits().heals_within_seconds <= HEAL_SECONDS_MAX
