"""A relay is killed at every step boundary there is; others heal it, and nothing is lost, doubled or taken back."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from redrive.kit.proof import failpoints
from redrive.prove.config import DESTINATIONS
from redrive.prove.environment import Environment
from redrive.prove.failpoint_scenarios import Strikes
from redrive.prove.producer import Order
from redrive.prove.script import Script
from tests.crash.lives import said, stop, wait_quiet

STRIKES_AT_ONCE = 4
POINTS = failpoints.boundaries()


@pytest.mark.req("G-06")
@pytest.mark.req("G-14")
@pytest.mark.timeout(240)
@pytest.mark.parametrize("half", [0, pytest.param(1, marks=pytest.mark.full)])
def test_a_kill_at_any_step_boundary_heals_and_nothing_is_lost(environment: Environment, half: int) -> None:
    points = POINTS[half::2]
    environment.observe(Script(seed=half))
    environment.produce(Order(name="flow", count=400, destinations=list(DESTINATIONS), pause_seconds=0.01))
    steady = environment.relay("steady", only=DESTINATIONS)
    strikes = Strikes(environment)
    with ThreadPoolExecutor(STRIKES_AT_ONCE) as pool:
        met = dict(zip(points, pool.map(strikes.strike, points), strict=True))
    last = environment.relay("last")
    wait_quiet(environment)
    codes = [stop(steady), stop(last)]

    assert [point for point in points if not met[point]] == []
    assert environment.verdict().sentences == [], said(environment)
    assert codes == [0, 0]
    assert environment.counts()["leased"] == 0
