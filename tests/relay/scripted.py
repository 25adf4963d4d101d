"""A transport that does as it was told, and counts: a dispatcher is tested with it, without network or database."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

from redrive.answers import Answer, LookupAnswer
from redrive.app import Destination
from redrive.events import Events
from redrive.message import Attempt
from redrive.policy import Backoff, Policy, Rules
from redrive.ports import Outcome
from redrive.relay.dispatching.dispatch import Dispatcher
from redrive.testing import ManualClock
from tests.support import messages as m

PLAIN = Policy(
    attempts=5,
    backoff=Backoff(initial_seconds=10, multiplier=2, max_seconds=1000, jitter="none"),
    lookups=3,
    lookup_backoff=Backoff(initial_seconds=5, multiplier=2, max_seconds=900, jitter="none"),
)
# A step: a value to return (an answer too), another exception (class or instance) to raise, or a function.
Step = Any
NOTHING = object()


class Scripted:
    """calls: what was called, in order. `validate` and `lookup` exist only where a step was given."""

    def __init__(self, *, send: Step = None, validate: Step = NOTHING, lookup: Step = NOTHING) -> None:
        self.calls: list[str] = []
        self._send = send
        self.validate = None if validate is NOTHING else self._step("validate", validate)
        self.lookup = None if lookup is NOTHING else self._step("lookup", lookup)
        self.classify: Callable[[BaseException], Answer | None] = lambda _: None

    async def send(self, attempt: Attempt, /) -> Answer | None:
        answer: Answer | None = await self._step("send", self._send)(attempt)
        return answer

    def _step(self, name: str, step: Step) -> Callable[[Attempt], Any]:
        async def run(attempt: Attempt) -> Any:
            self.calls.append(name)
            if isinstance(step, Answer | LookupAnswer):
                return step
            if isinstance(step, BaseException) or (isinstance(step, type) and issubclass(step, BaseException)):
                raise step
            return await step(attempt) if callable(step) else step

        return run


class Raised:
    """Marks an answer that is to be raised, where a plain one would be returned."""

    def __init__(self, answer: Answer | LookupAnswer) -> None:
        self.answer = answer

    async def __call__(self, attempt: Attempt) -> None:
        raise self.answer


async def hang(attempt: Attempt) -> None:
    await asyncio.Event().wait()


class Stage:
    """One dispatcher with its clock and its events."""

    def __init__(self, transport: Any, *, timeout_seconds: float = 30.0, staged: bool = False, **rules: Any) -> None:
        self.transport = transport
        self.clock = ManualClock()
        self.events: list[str] = []
        told = Events()
        told.subscribe(lambda name, _: self.events.append(name))
        self.rules = Rules(**{"policy": PLAIN, **rules})
        destination = Destination(
            name=m.DESTINATION,
            transport=transport,
            rules=self.rules,
            timeout_seconds=timeout_seconds,
            staged=staged,
        )
        self.dispatcher = Dispatcher(destination, clock=self.clock, random=Random(1), events=told)

    async def dispatch(self, attempt: Attempt, *, may_send: Callable[[], bool] = lambda: True) -> Outcome:
        return await self.dispatcher.dispatch(attempt, claimed_at=self.clock.monotonic(), may_send=may_send)


async def dispatch(transport: Scripted, attempt: Attempt | None = None, **rules: Any) -> Outcome:
    return await Stage(transport, **rules).dispatch(attempt or m.attempt())
