"""Settings of a relay: every bound with its rejected neighbour, relations, and healing in time by default."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import pytest

from redrive.errors import SettingsError
from redrive.settings import RelayLimits

pytestmark = pytest.mark.req("G-19")

# setting: lowest, just below it, highest, just above it
BOUNDS: dict[str, tuple[float, float, float, float]] = {
    "lease_seconds": (1, 0.999, 3600, 3600.001),
    "reap_every_seconds": (0.1, 0.0999, 600, 600.001),
    "concurrency": (1, 0, 10_000, 10_001),
    "claim_max": (1, 0, 5000, 5001),
    "poll_seconds": (0.05, 0.0499, 300, 300.001),
    "horizon_seconds": (0, -0.001, 10, 10.001),
    "record_timeout_seconds": (0.1, 0.0999, 600, 600.001),
    "stop_seconds": (0, -0.001, 3600, 3600.001),
    "heartbeat_seconds": (0.1, 0.0999, 30, 30.001),
}


def limits(name: str, value: float) -> RelayLimits:
    """With that one changed, and a lease (or heartbeat) that goes with it."""
    around: dict[str, Any] = {"lease_seconds": 3600, "heartbeat_seconds": 0.1}
    return RelayLimits(**{**around, name: value})


def test_every_setting_has_its_bounds_tested() -> None:
    assert set(BOUNDS) == set(RelayLimits.model_fields)


@pytest.mark.parametrize("name", BOUNDS)
def test_bounds_are_accepted_and_their_neighbours_refused(name: str) -> None:
    low, below, high, above = BOUNDS[name]
    for value in (low, high):
        assert getattr(limits(name, value), name) == value
    for value in (below, above, nan, inf, -inf):
        with pytest.raises(SettingsError, match=f"^{name} is {value}; it must be a .*number from {low} to {high} "):
            limits(name, value)


def test_three_heartbeats_must_fit_into_a_lease() -> None:
    assert RelayLimits(lease_seconds=6, heartbeat_seconds=2).heartbeat_seconds == 2
    with pytest.raises(SettingsError, match=r"heartbeat_seconds is 2.001; a lease must be at least 3 heartbeats"):
        RelayLimits(lease_seconds=6, heartbeat_seconds=2.001)


@pytest.mark.req("G-14")
def test_defaults_heal_within_two_minutes() -> None:
    """Also where the reaper's turn has only just passed, and the next one is missed because its relay died too."""
    default = RelayLimits()
    assert default.heals_within_seconds == default.lease_seconds + default.reap_every_seconds
    assert default.heals_within_seconds + default.reap_every_seconds <= 120


@pytest.mark.req("G-14")
def test_two_renewals_may_fail_before_a_lease_runs_out() -> None:
    assert RelayLimits(lease_seconds=60).renew_every_seconds == 20
