"""What a relay has in hand is listed in the order in which it began, never by where it lies in memory."""

from __future__ import annotations

from random import Random

import pytest

from redrive.app import Destination
from redrive.events import Events
from redrive.policy import Rules
from redrive.relay.claiming.capacity import Capacity
from redrive.relay.dispatching.destination_queue import DestinationQueue, Slot
from redrive.relay.dispatching.dispatch import Dispatcher
from redrive.relay.wakeup.poll_schedule import PollSchedule
from redrive.testing.clock import ManualClock
from tests.relay.scripted import Scripted


@pytest.mark.req("G-17")
def test_what_is_overdue_is_cut_off_in_the_order_in_which_it_began() -> None:
    queue = new_hand()
    slots = [Slot(deadline=1.0) for _ in range(100)]
    Random(1).shuffle(slots)
    queue.slots.update(dict.fromkeys(slots))
    assert queue.overdue(2.0) == slots


def new_hand() -> DestinationQueue:
    destination = Destination(name="d", transport=Scripted(), rules=Rules())
    dispatcher = Dispatcher(destination, clock=ManualClock(), random=Random(1), events=Events())
    return DestinationQueue(destination, dispatcher, Capacity("d", concurrency=100), PollSchedule(1.0))
