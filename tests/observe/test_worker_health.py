"""The health of a worker: connected, reachable, messages end, not stopping; each failure has its reason."""

from __future__ import annotations

import pytest

from redrive.events import Events
from redrive.operate.observe.worker_health import WorkerHealth

pytestmark = pytest.mark.req("G-20")


class Worker:
    """Events of a worker with one consumer, on a clock of the test's own."""

    def __init__(self) -> None:
        self.now = 0.0
        self.events = Events()
        self.health = WorkerHealth({"billing": 30}, stalled_seconds=90, monotonic=lambda: self.now)
        self.health.subscribe(self.events)

    def does(self, *names: str, count: int = 1) -> Worker:
        for name in names:
            event = name if name.startswith("worker.") else f"consumer.{name}"
            self.events.emit(event, consumer="billing", count=count)
        return self

    def reasons(self) -> list[str]:
        return [check.reason for check in self.health.checks() if check.reason]


def test_a_worker_is_ready_while_its_source_and_the_database_answer() -> None:
    worker = Worker().does("started", "looked")
    assert worker.reasons() == ["it has not registered yet"]
    assert worker.does("worker.seen").health.is_ready()
    assert worker.does("source_failed").reasons() == ["not connected to the source of: billing"]
    assert worker.does("looked", "received", "unreachable").reasons() == ["the database does not answer"]
    assert worker.does("processed").health.is_ready()
    assert worker.does("worker.unreachable").reasons() == ["the database does not answer"]
    assert worker.does("worker.seen").health.is_ready()
    assert worker.does("stopping").reasons() == ["it is stopping"]


def test_messages_in_hand_of_which_none_ends_are_unhealthy() -> None:
    worker = Worker().does("worker.seen", "looked").does("received", count=2)
    worker.now = 121
    assert worker.does("looked").reasons() == ["messages are in hand and none ends of: billing"]
    assert worker.does("processed").reasons() == []
    worker.does("seen").now = 300
    assert worker.does("looked").health.is_ready()  # nothing is in hand


def test_a_loop_that_stands_still_is_not_live() -> None:
    worker = Worker().does("looked")
    worker.now = 120
    assert worker.health.is_live()
    worker.now = 121
    assert not worker.health.is_live()


def test_an_event_that_can_be_neither_processed_nor_deferred_is_said_until_it_comes_no_more() -> None:
    worker = Worker().does("worker.seen", "looked", "received", "reserved", "given_back")
    assert worker.reasons() == ["an event can be neither processed nor deferred of: billing"]
    assert worker.health.is_ready()
    worker.now = 121
    assert worker.does("looked").reasons() == []
