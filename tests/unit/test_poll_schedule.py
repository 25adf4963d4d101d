"""When to look again after finding nothing (G-08)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.relay.wakeup.poll_schedule import PollSchedule

pytestmark = pytest.mark.req("G-08")


def _pauses(poll: PollSchedule, looks: int) -> list[float]:
    """What it waits after each of so many empty looks, each taken as soon as it is due."""
    now, pauses = 0.0, []
    for _ in range(looks):
        poll.found_nothing(now)
        assert not poll.is_due(now)
        assert poll.is_due(poll.look_at)
        pauses.append(poll.look_at - now)
        now = poll.look_at
    return pauses


def test_steps_right_after_going_idle_are_short_and_then_the_poll() -> None:
    assert _pauses(PollSchedule(0.25), 8) == pytest.approx([0.01, 0.025, 0.05, 0.1, 0.2, 0.25, 0.25, 0.25])


def test_finding_something_starts_the_short_steps_again() -> None:
    poll = PollSchedule(1.0)
    _pauses(poll, 7)
    poll.found_something()
    assert poll.is_due(0.0)
    assert _pauses(poll, 6) == pytest.approx([0.01, 0.025, 0.05, 0.1, 0.2, 1.0])


@given(st.floats(0.05, 60), st.integers(1, 40))
def test_no_pause_is_longer_than_the_poll(poll_seconds: float, looks: int) -> None:
    pauses = _pauses(PollSchedule(poll_seconds), looks)
    assert all(0 < pause <= poll_seconds + 1e-6 for pause in pauses)


def test_a_call_is_a_reason_to_look_at_once() -> None:
    poll = PollSchedule(60.0)
    _pauses(poll, 7)
    assert not poll.is_due(10.0)
    poll.make_due(10.0)
    assert poll.is_due(10.0)


def test_a_call_during_a_look_is_not_forgotten_when_that_finds_nothing() -> None:
    """The look may have begun before what it was called for."""
    poll = PollSchedule(60.0)
    poll.make_due(10.0)
    poll.found_nothing(11.0, asked_at=9.0)
    assert poll.is_due(11.0)
    poll.found_nothing(13.0, asked_at=12.0)
    assert not poll.is_due(13.0)


def test_after_all_was_found_the_next_look_is_the_first_short_step_away() -> None:
    poll = PollSchedule(60.0)
    _pauses(poll, 7)
    poll.found_all(100.0, asked_at=99.0)
    assert poll.look_at == pytest.approx(100.01)
    assert _pauses(poll, 2) == pytest.approx([0.025, 0.05])


@pytest.mark.req("G-25")
def test_held_back_it_looks_again_after_a_moment_if_something_went() -> None:
    poll = PollSchedule(1.0)
    _pauses(poll, 4)
    poll.held_back(10.0, found=True, asked_at=9.9)
    assert poll.look_at == pytest.approx(10.05)
    poll.held_back(11.0, found=False, asked_at=10.9)
    assert poll.look_at == pytest.approx(11.01), "the short steps begin again"


@pytest.mark.req("G-25")
def test_held_back_with_nothing_it_looks_often_for_a_second_and_then_by_the_poll() -> None:
    poll, now, pauses = PollSchedule(1.0), 1.0, []
    for _ in range(28):
        poll.held_back(now, found=False, asked_at=now)
        pauses.append(poll.look_at - now)
        now = poll.look_at
    assert pauses[:3] == pytest.approx([0.01, 0.025, 0.05]), "soon: another claim may have held the row"
    assert max(pauses[:24]) == pytest.approx(0.05)
    assert sum(pauses[:24]) > 1.1, "longer than a rate lets nothing out"
    assert pauses[24:] == pytest.approx([0.1, 0.2, 1.0, 1.0])


@pytest.mark.req("G-25")
@pytest.mark.parametrize("found", [True, False])
def test_a_call_while_the_look_was_under_way_is_not_lost(found: bool) -> None:
    poll = PollSchedule(0.25)
    poll.make_due(5.0)
    poll.held_back(5.1, found=found, asked_at=4.9)
    assert poll.is_due(5.1)
