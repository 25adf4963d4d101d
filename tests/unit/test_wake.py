"""When to look again after finding nothing (G-08)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.relay.wake import Wake

pytestmark = pytest.mark.req("G-08")


def test_steps_right_after_going_idle_are_short_and_then_the_poll() -> None:
    wake = Wake(0.25)
    assert [wake.pause_seconds() for _ in range(8)] == [0.01, 0.025, 0.05, 0.1, 0.2, 0.25, 0.25, 0.25]


def test_finding_something_starts_the_short_steps_again() -> None:
    wake = Wake(1.0)
    for _ in range(7):
        wake.pause_seconds()
    wake.found_something()
    assert [wake.pause_seconds() for _ in range(6)] == [0.01, 0.025, 0.05, 0.1, 0.2, 1.0]


@given(st.floats(0.05, 60), st.integers(1, 40))
def test_no_pause_is_longer_than_the_poll(poll_seconds: float, looks: int) -> None:
    wake = Wake(poll_seconds)
    pauses = [wake.pause_seconds() for _ in range(looks)]
    assert all(0 < pause <= poll_seconds for pause in pauses)
    assert pauses == sorted(pauses)
