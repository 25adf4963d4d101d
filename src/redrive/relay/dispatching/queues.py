"""The queues of one relay, by destination."""

from collections.abc import Mapping
from random import Random

from redrive.app import Destination
from redrive.relay.claiming.capacity import Capacity
from redrive.relay.claiming.claim import Claim
from redrive.relay.context import RelayContext
from redrive.relay.dispatching.destination_queue import DestinationQueue
from redrive.relay.dispatching.dispatch import Dispatcher
from redrive.relay.wakeup.poll_schedule import PollSchedule


class DestinationQueues(dict[str, DestinationQueue]):
    """money: those that move money. _capped: those with a limit over all relays."""

    def __init__(self, destinations: Mapping[str, Destination], context: RelayContext, *, random: Random) -> None:
        super().__init__(
            (
                name,
                DestinationQueue(
                    destination,
                    Dispatcher(destination, clock=context.clock, random=random, events=context.events),
                    _capacity(destination),
                    PollSchedule(context.limits.poll_seconds),
                ),
            )
            for name, destination in destinations.items()
        )
        self._context = context
        self.money = [queue for queue in self.values() if queue.destination.rules.money]
        self._capped = [queue for queue in self.values() if queue.destination.global_concurrency is not None]

    def poll_now(self) -> None:
        now = self._context.clock.monotonic()
        for queue in self.values():
            queue.poll.make_due(now)
        self._context.changed.set()

    def rung(self) -> None:
        """A producer has rung the doorbell."""
        self._context.events.emit("relay.rung", worker=self._context.worker)
        if any(queue.paused for queue in self.values()):
            self._context.beat_asked.set()  # one may have been resumed
        self.poll_now()

    def freed(self) -> None:
        """A claim is over: there may be room, also under a limit over all relays."""
        for queue in self._capped:
            queue.poll.make_due(self._context.clock.monotonic())
        self._context.changed.set()

    def drop(self, claim: Claim) -> bool:
        """False if the claim does not wait."""
        waiting = self[claim.attempt.destination].waiting
        if claim not in waiting:
            return False
        waiting.remove(claim)
        return True

    def take_waiting(self) -> list[Claim]:
        return [claim for queue in self.values() for claim in queue.take_waiting()]

    def lacks_threads(self, queue: DestinationQueue) -> bool:
        """Handlers that never returned hold so many threads that a child process has to run what is claimed."""
        context = self._context
        return context.has_children and not context.suspects_only and not queue.dispatcher.has_threads()


def _capacity(destination: Destination) -> Capacity:
    limit = destination.global_concurrency
    at_once = destination.concurrency if limit is None else min(destination.concurrency, limit)
    rules = destination.rules
    only_begun = rules.in_doubt == "hold" or (rules.money and rules.in_doubt != "lookup")
    rated = destination.rate is not None and destination.limit_key is None  # else each of its keys is
    ahead = limit is None and not rated and not only_begun
    return Capacity(destination.name, at_once, ahead=ahead, only_begun=only_begun)
