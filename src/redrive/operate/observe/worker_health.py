"""The health of a worker, judged by its events.

live: each consumer's loop went round, or a message of it ended, within `stalled_seconds` and its handler's timeout.
ready: it has registered, PostgreSQL and its sources answer, messages in hand end, and it is not stopping.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any

from redrive.consume.progress import Progress, WorkerProgress
from redrive.events import Events
from redrive.operate.observe.health import STALLED_SECONDS, Check, Health, Verdict, check


class WorkerHealth(Health):
    """timeouts: seconds that one call of each consumer's handler may take."""

    def __init__(
        self,
        timeouts: Mapping[str, float],
        *,
        stalled_seconds: float = STALLED_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(stalled_seconds=stalled_seconds, monotonic=monotonic)
        self._limits = {name: stalled_seconds + seconds for name, seconds in timeouts.items()}
        self._progress = WorkerProgress(timeouts, monotonic=monotonic)

    def subscribe(self, events: Events) -> Callable[[], None]:
        ends = [self._progress.subscribe(events), events.subscribe(self._note, "worker.seen", "worker.unreachable")]

        def stop() -> None:
            for end in ends:
                end()

        return stop

    def checks(self) -> list[Check]:
        stopping = self._those(lambda _, seen: seen.is_stopping)
        away = self._those(lambda _, seen: not seen.is_connected)
        now = self._monotonic()
        stuck = self._those(lambda limit, seen: now - seen.reserved_at <= limit)
        return [
            self._liveness(),
            check("started", self._has_started and not stopping, Verdict.UNHEALTHY, self._phase()),
            check("sources", not away, Verdict.UNHEALTHY, f"not connected to the source of: {away}"),
            check("database", not self._lacks_database(), Verdict.UNHEALTHY, "the database does not answer"),
            self._messages(),
            check("events", not stuck, Verdict.DEGRADED, f"an event can be neither processed nor deferred of: {stuck}"),
        ]

    def _phase(self) -> str:
        return "it is stopping" if self._has_started else "it has not registered yet"

    def _lacks_database(self) -> bool:
        return self._is_unreachable or any(seen.is_unreachable for seen in self._progress.of.values())

    def _liveness(self) -> Check:
        now = self._monotonic()
        still = self._those(lambda limit, seen: not seen.is_stopping and now - seen.moved_at > limit)
        return check("loop", not still, Verdict.UNHEALTHY, f"the loop does not go round of: {still}")

    def _messages(self) -> Check:
        now = self._monotonic()
        stuck = self._those(lambda limit, seen: seen.in_hand > 0 and now - seen.waits_since > limit)
        return check("messages", not stuck, Verdict.UNHEALTHY, f"messages are in hand and none ends of: {stuck}")

    def _those(self, are: Callable[[float, Progress], bool]) -> str:
        return ", ".join(name for name, seen in self._progress.of.items() if are(self._limits[name], seen))

    def _note(self, name: str, _: Mapping[str, Any]) -> None:
        self._is_unreachable = name == "worker.unreachable"
        self._has_started = self._has_started or name == "worker.seen"
