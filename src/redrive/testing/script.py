"""A destination that answers by a script, and remembers what it was sent.

    mail = ScriptedTransport(Retryable("BUSY"), Delivered("id-1"))
    drain(conn, rewired(app, {"mail": mail}), clock=clock, to_the_end=True)
    mail.assert_used_up()

For tests of what follows from an answer: retries, doubt, dead letters, what `record` writes.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from redrive.answers import Absent, Answer, LookupAnswer, Terminal
from redrive.app import App
from redrive.message import Attempt
from redrive.ports import Transport
from redrive.ports.sources import Source
from redrive.testing.clock import ManualClock
from redrive.transports.network_errors import classify

SCRIPT_ENDED: Final = "SCRIPT_ENDED"
_LOOK_OUT_SECONDS: Final = 0.2  # long enough for a relay to notice that a timeout has passed


@dataclass(frozen=True)
class Slow:
    """A step that takes its time, and is cut off if that is longer than the destination's timeout.

    clock: it is advanced by so much, instead of waiting.
    """

    step: Step
    seconds: float
    clock: ManualClock | None = None


# None: delivered. An answer: that. Another exception: raised. A function of the attempt, `async` or not: its answer.
Step = Answer | LookupAnswer | BaseException | Slow | Callable[[Attempt], Any] | None


class ScriptedTransport:
    """Answers one step after the other, whichever message comes. sent, asked: the attempts that it saw.

    What is sent after the script has ended is parked with SCRIPT_ENDED; `assert_used_up` says so.
    """

    def __init__(self, *steps: Step, lookups: Iterable[Step] = ()) -> None:
        self.sent: list[Attempt] = []
        self.asked: list[Attempt] = []
        self._steps = deque(steps)
        self._lookups = deque(lookups)
        self._surplus = 0
        # Whether there is a lookup decides what a relay does in doubt, so there is none unless it was scripted.
        self.lookup: Callable[[Attempt], Awaitable[Any]] | None = self._look_up if self._lookups else None
        self.classify = classify

    async def send(self, attempt: Attempt, /) -> Any:
        self.sent.append(attempt)
        return await self._play(self._steps, attempt, instead=Terminal(SCRIPT_ENDED))

    async def _look_up(self, attempt: Attempt) -> Any:
        self.asked.append(attempt)
        return await self._play(self._lookups, attempt, instead=Absent())

    async def _play(self, steps: deque[Step], attempt: Attempt, instead: Step) -> Any:
        if not steps:
            self._surplus += 1
        return await _answer(steps.popleft() if steps else instead, attempt)

    def assert_used_up(self) -> None:
        """Every step was taken, and no further one was asked for."""
        left = [*self._steps, *self._lookups]
        if left or self._surplus:
            raise AssertionError(
                f"{len(left)} steps of the script were not taken: {left};"
                f" {self._surplus} attempts or lookups came after its end."
            )


def rewired(
    app: App, transports: Mapping[str, Transport] | None = None, *, sources: Mapping[str, Source] | None = None
) -> App:
    """The same app with other transports, and other sources of consumers: rules, limits and `record` stay. The given
    app is not changed."""
    transports, sources = transports or {}, sources or {}
    _check_known("destination", transports, app.destinations)
    _check_known("consumer", sources, app.consumers)
    other = App()
    for name, destination in app.destinations.items():
        other.add(replace(destination, transport=transports.get(name, destination.transport)))
    for name, consumer in app.consumers.items():
        other.consumers[name] = replace(consumer, source=sources.get(name, consumer.source))
    return other


def _check_known(what: str, given: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise KeyError(f"The app has no {what} {unknown[0]!r}; it has: {', '.join(sorted(known))}.")


async def _answer(step: Step, attempt: Attempt) -> Any:
    if isinstance(step, Slow):
        await _take_time(step)
        return await _answer(step.step, attempt)
    if step is None or isinstance(step, Answer | LookupAnswer):
        return step
    if isinstance(step, BaseException):
        raise step
    answer = step(attempt)
    return await answer if inspect.isawaitable(answer) else answer


async def _take_time(slow: Slow) -> None:
    if slow.clock is None:
        await asyncio.sleep(slow.seconds)
        return
    slow.clock.advance(slow.seconds)
    await asyncio.sleep(_LOOK_OUT_SECONDS)
