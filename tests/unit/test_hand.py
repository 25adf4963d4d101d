"""What a relay has in hand is listed in the order in which it began, never by where it lies in memory."""

from __future__ import annotations

from random import Random

import pytest

from redrive.app import Destination
from redrive.events import Events
from redrive.policy import Rules
from redrive.relay.dispatch import Dispatcher
from redrive.relay.hand import Hand, Slot
from redrive.relay.room import Demand
from redrive.relay.wake import Wake
from redrive.testing.clock import ManualClock
from tests.relay.scripted import Scripted


@pytest.mark.req("G-17")
def test_what_is_overdue_is_cut_off_in_the_order_in_which_it_began() -> None:
    hand = new_hand()
    slots = [Slot(deadline=1.0) for _ in range(100)]
    Random(1).shuffle(slots)
    hand.slots.update(dict.fromkeys(slots))
    assert hand.overdue(2.0) == slots


def new_hand() -> Hand:
    destination = Destination(name="d", transport=Scripted(), rules=Rules())
    dispatcher = Dispatcher(destination, clock=ManualClock(), random=Random(1), events=Events())
    return Hand(destination, dispatcher, Demand("d", concurrency=100), Wake(1.0))
