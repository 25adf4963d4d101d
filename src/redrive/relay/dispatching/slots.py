"""Gives the slots of the process to destinations. A slot is a task that works off one destination's queue.

Destination and process each have a concurrency. While all slots of the process are in use, the next free one goes to
the waiting destination with the fewest slots, so none starves.
"""

from collections.abc import Coroutine
from typing import Any, Protocol

from redrive.relay.context import RelayContext
from redrive.relay.dispatching.destination_queue import DestinationQueue, Slot


class Runner(Protocol):
    def work(self, queue: DestinationQueue, slot: Slot) -> Coroutine[Any, Any, None]:
        """Dispatch what waits, until nothing does, or another destination gets the slot."""
        ...


class Slots:
    """runner: set once, when the relay is built. The runner needs the slots, and a slot needs the runner."""

    runner: Runner

    def __init__(self, context: RelayContext) -> None:
        self._context = context
        self._used = 0
        self._short: dict[DestinationQueue, None] = {}  # what waits while all slots of the process are in use, in turn

    @property
    def free_count(self) -> int:
        return max(self._context.limits.concurrency - self._used, 0)

    def fill(self, queue: DestinationQueue) -> None:
        """Start as many slots as there is work and room for."""
        if self._context.stopping.is_set() or queue.is_closed:
            return
        ready = queue.may_begin(self._context.clock.monotonic())
        wanted = min(queue.destination.concurrency, len(queue.slots) + ready)
        for _ in range(wanted - len(queue.slots)):
            if self._used >= self._context.limits.concurrency:
                self._short.setdefault(queue)
                return
            self._used += 1
            slot = Slot()
            queue.slots[slot] = None
            slot.task = self._context.tasks.start(self.runner.work(queue, slot))
        self._short.pop(queue, None)

    def refill(self, queue: DestinationQueue) -> None:
        self.fill(queue)
        self._context.changed.set()

    def free(self, queue: DestinationQueue, slot: Slot) -> None:
        if slot in queue.slots:
            del queue.slots[slot]
            self._used -= 1
            self._context.changed.set()
            self._give_to_others()

    def _give_to_others(self) -> None:
        """To the destination with the fewest slots first; one that can use no more leaves the list."""
        now = self._context.clock.monotonic()
        for queue in sorted(self._short, key=lambda queue: len(queue.slots)):
            if not queue.has_free_slot(now):
                self._short.pop(queue, None)
            elif self._used < self._context.limits.concurrency:
                self.fill(queue)

    def must_pass_on(self, queue: DestinationQueue) -> bool:
        """Whether a slot of this destination has to end, because another destination gets it."""
        if not self._short or not self._is_owed_to_another(queue):
            return False
        self._short.pop(queue, None)
        self._short[queue] = None  # behind those that wait already
        return True

    def _is_owed_to_another(self, queue: DestinationQueue) -> bool:
        """Another destination waits with none, or with fewer than this one."""
        now = self._context.clock.monotonic()
        return any(
            other.has_free_slot(now) and (not other.slots or len(other.slots) + 1 < len(queue.slots))
            for other in self._short
        )
