"""Real relays on a real server whose clock is set while they run: hours of a jump cost seconds (G-33)."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from redrive.kit.proof import movable_clock
from redrive.kit.proof.directories import open_directory
from redrive.kit.proof.failpoints import Failpoint
from redrive.kit.proof.movable_clock import MovableClock
from redrive.prove.isolation import on_database
from redrive.prove.isolation.environment import APP, ARRIVE_SECONDS, LOG_VARIABLE, CaseEnvironment

pytestmark = [pytest.mark.req("G-33"), pytest.mark.full, pytest.mark.own_server]

HOUR = 3600.0


@pytest.fixture
def server() -> Iterator[tuple[CaseEnvironment, MovableClock]]:
    assert movable_clock.library() is not None, movable_clock.MISSING
    with (
        open_directory() as place,
        movable_clock.open_movable(place) as (dsn, clock),
        CaseEnvironment(place, dsn) as ground,
    ):
        yield ground, clock


def test_a_clock_that_is_set_in_either_direction_stalls_nothing_and_sends_nothing_twice() -> None:
    assert movable_clock.library() is not None, movable_clock.MISSING
    with open_directory() as place, CaseEnvironment(place, "") as ground:
        figures = on_database.clock(ground)
    assert [figure.what for figure in figures if figure.unit == "s" and figure.measured >= ARRIVE_SECONDS] == []
    assert [figure.what for figure in figures if figure.unit == "" and figure.measured] == []


def test_a_relay_that_starts_after_the_clock_was_set_back_finds_what_was_due(
    server: tuple[CaseEnvironment, MovableClock],
) -> None:
    ground, clock = server
    first = ground.start_relay()
    ground.send("neighbour", ["before"])
    assert ground.wait_begun(["before"])
    ground.wait(lambda: ground.value("SELECT 1 FROM redrive.duty WHERE finished_at IS NOT NULL"), seconds=20)
    first.signal(signal.SIGKILL)
    first.wait(20)
    waiting = [f"waits/{number}" for number in range(20)]
    ground.send("neighbour", waiting)
    clock.set_off(-3 * HOUR)
    ground.start_relay()
    assert ground.wait_begun(waiting)
    assert ground.value("SELECT count(*) FROM redrive.clock_jump WHERE offset_seconds < -10700") == 1
    assert ground.value("SELECT noticed_by FROM redrive.clock_jump") == "relay"


@pytest.mark.parametrize("event", ["clock_jumped.start", "clock_jumped.stop", "redate.start", "redate.stop"])
def test_a_relay_that_is_killed_while_it_mends_a_jump_leaves_the_rest_of_that_to_the_next(
    server: tuple[CaseEnvironment, MovableClock], event: str
) -> None:
    ground, clock = server
    mark = ground.mark()
    log = {LOG_VARIABLE: str(ground.begun_log)}
    first = ground.relay(app=APP, failpoint=Failpoint(event=event), mark=mark, environment=log)
    ground.send("neighbour", ["before"])
    assert ground.wait_begun(["before"])
    ground.wait(lambda: ground.value("SELECT 1 FROM redrive.duty WHERE finished_at IS NOT NULL"), seconds=20)
    ground.value("SELECT redrive.pause_1('neighbour', 'test', 'test')")
    waiting = [f"waits/{number}" for number in range(20)]
    ground.send("neighbour", waiting)
    clock.set_off(-3 * HOUR)
    assert ground.wait(lambda: first.code is not None, seconds=30)
    assert mark.exists()
    assert not set(waiting) & ground.begun().keys()
    ground.value("SELECT redrive.resume_1('neighbour', 'test', 'test')")
    ground.start_relay()
    assert ground.wait_begun(waiting)
    assert ground.sent_twice() == 0
    assert ground.value("SELECT count(*) FROM redrive.clock_jump WHERE offset_seconds < -10700") == 1
    assert ground.value("SELECT count(*) FROM redrive.clock_jump") == 1
    finished = "SELECT count(*) FROM redrive.clock_jump WHERE finished_at IS NOT NULL AND redated >= 20"
    assert ground.wait(lambda: ground.value(finished) == 1, seconds=60)
