"""The engine's events: dotted names with plain values and no text.

A step emits `<step>.start`, then `<step>.stop` or `<step>.exception`; a fact emits one name. Logs, metrics, traces,
tests and `redrive prove` subscribe. `STEPS` and `FACTS` list every name, so that a test can kill a process at each
step.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

Subscriber = Callable[[str, Mapping[str, Any]], None]

# Every boundary that a crash can fall on. The verbs of docs/glossary.md, and what surrounds them in one settle.
STEPS: Final = (
    *("claim", "claim_suspect", "low_water", "dispatch", "lookup", "validate", "send"),
    *("settle", "settle_one", "fence", "record", "commit", "is_leased", "check_claims", "hand_back", "renew"),
    *("pause", "pause_until", "open_breaker", "close_breaker", "book_key", "probe_key"),
    *("register", "heartbeat", "observe_clock", "clock_jumped", "redate", "witness", "announce_idle", "echo"),
    *("deregister", "suspect_destinations", "reap", "expire", "mend_lanes", "fold_failures", "run_replay"),
    *("take_requests", "answer_request", "make_partitions", "forget_relays", "forget_inbox", "vacuum", "retire"),
    *("begin_duty", "duty", "end_duty"),
)
# Steps inside the one transaction of `settle_one`: each has a start and no end of its own.
INNER_STEPS: Final = frozenset({"fence", "record", "commit"})
FACTS: Final = (
    *("relay.started", "relay.stopping", "relay.stopped", "relay.looked", "relay.idle", "relay.rung"),
    *("relay.unreachable", "relay.reply_lost", "relay.asynchronous_commit", "relay.restored", "relay.clock_jumped"),
    *("relay.unwitnessed", "listener.listening", "listener.reconnecting", "listener.deaf"),
    *("message.delivered", "message.advanced", "message.retried", "message.parked", "message.closed"),
    *("message.handed_back", "message.refused", "message.lease_lost", "destination.paused", "destination.resumed"),
    *("breaker.opened", "breaker.recovered"),
    *("limit_key.paused", "limit_key.resumed", "limit_key.opened", "limit_key.recovered"),
    *("duty.failed", "lanes.mended", "suspects.spawned", "suspects.waiting", "suspects.ended"),
    *("consumer.started", "consumer.received", "consumer.processed", "consumer.deferred", "consumer.seen"),
    *("consumer.given_back", "consumer.reserved", "consumer.unreachable", "consumer.source_failed"),
    *("consumer.looked", "consumer.stopping", "consumer.progress", "consumer.stopped"),
    *("worker.started", "worker.seen", "worker.unreachable", "worker.stopped"),
)
EDGES: Final = ("start", "stop", "exception")
NAMES: Final = (
    frozenset(FACTS)
    | {f"{step}.start" for step in STEPS}
    | {f"{step}.{edge}" for step in STEPS if step not in INNER_STEPS for edge in EDGES[1:]}
)


class Events:
    """With no subscriber, an event costs a dictionary lookup; a subscriber must not block."""

    def __init__(self) -> None:
        self._subscribers: dict[str, list[Subscriber]] = {}
        self._wanted_steps: dict[str, bool] = {}  # what `wants_step` has answered since the last change

    def subscribe(self, subscriber: Subscriber, *names: str) -> Callable[[], None]:
        """Call `subscriber(name, values)` for the given names, or for all. Returns the function that ends it."""
        wanted = names or tuple(NAMES)
        unknown = set(wanted) - NAMES
        if unknown:
            raise KeyError(f"There is no event named {sorted(unknown)}; redrive.events.NAMES lists them all.")
        for name in wanted:
            self._subscribers.setdefault(name, []).append(subscriber)
        self._wanted_steps.clear()
        return lambda: self._unsubscribe(subscriber, wanted)

    def _unsubscribe(self, subscriber: Subscriber, names: tuple[str, ...]) -> None:
        for name in names:
            if subscriber in self._subscribers.get(name, ()):
                self._subscribers[name].remove(subscriber)
        self._wanted_steps.clear()

    def wants(self, name: str) -> bool:
        """Asked before values are put together on a hot path."""
        return bool(self._subscribers.get(name))

    def wants_step(self, step: str) -> bool:
        wanted = self._wanted_steps.get(step)
        if wanted is None:
            wanted = self._wanted_steps[step] = any(map(self.wants, (f"{step}.{edge}" for edge in EDGES)))
        return wanted

    def emit(self, name: str, /, **values: Any) -> None:
        for subscriber in tuple(self._subscribers.get(name, ())):
            subscriber(name, values)

    @contextmanager
    def step(self, step: str, /, **values: Any) -> Iterator[dict[str, Any]]:
        """Emit start, then stop with what the block added to the yielded dictionary, or exception."""
        self.emit(f"{step}.start", **values)
        added: dict[str, Any] = {}
        try:
            yield added
        except BaseException as error:
            self.emit(f"{step}.exception", **values, error=type(error).__qualname__)
            raise
        self.emit(f"{step}.stop", **values, **added)
