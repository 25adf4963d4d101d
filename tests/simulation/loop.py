"""An event loop without a world: time is a number, and several processes share it.

Production code runs on it unchanged. Nothing sleeps, no thread and no socket exists: when nobody can go on, the clock
jumps to the next timer. Within a process callbacks run in the order in which they were scheduled, as asyncio promises;
which process runs next is drawn from the seed, one callback at a time, so that every interleaving between processes can
come up. A process can be killed (all that it had vanishes, no `finally` runs), stopped (it does not run, its clock goes
on) or suspended (its clock stands still as well), after any callback.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from itertools import count
from random import Random
from typing import Any, Final

from redrive.events import Events

_PROCESS: Final[ContextVar[Process]] = ContextVar("process")
TICK_SECONDS: Final = 1e-6


class Process:
    """What one operating system process is to the loop: its callbacks, its timers, its clock.

    behind_seconds: how long its clock has stood still. steps: callbacks run so far. events: the engine's, in it.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.ready: deque[asyncio.Handle] = deque()
        self.timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self.behind_seconds = 0.0
        self.halted = False
        self.dead = False
        self.steps = 0
        self.context: Context = copy_context()
        self.context.run(_PROCESS.set, self)
        self.events = Events()
        self._strikes: list[tuple[int, Callable[[], None]]] = []

    def after_steps(self, steps: int, strike: Callable[[], None]) -> None:
        """Strike between two callbacks, that many from now."""
        self._strikes.append((self.steps + steps, strike))

    def at_event(self, name: str, strike: Callable[[], None]) -> None:
        """Strike when the engine next says this of itself."""

        def heard(_name: str, _values: Mapping[str, Any]) -> None:
            unsubscribe()
            strike()

        unsubscribe = self.events.subscribe(heard, name)

    def took_step(self) -> None:
        self.steps += 1
        if self._strikes:
            due = [strike for at, strike in self._strikes if at <= self.steps]
            self._strikes = [(at, strike) for at, strike in self._strikes if at > self.steps]
            for strike in due:
                strike()

    def next_time(self) -> float | None:
        """The world's time at which its next timer is due."""
        while self.timers and self.timers[0][2].cancelled():
            heapq.heappop(self.timers)
        return self.timers[0][0] + self.behind_seconds if self.timers else None

    def ring(self, now: float) -> None:
        """Make ready what is due."""
        while self.timers and self.timers[0][0] + self.behind_seconds <= now:
            timer = heapq.heappop(self.timers)[2]
            if not timer.cancelled():
                self.ready.append(timer)


class _Task(asyncio.Task[Any]):
    """A task whose place in a set does not depend on its address: the same seed is the same run."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], *, loop: SimulationLoop, **others: Any) -> None:
        self.number = next(loop.numbers)
        self.process = (others.get("context") or copy_context()).get(_PROCESS, loop.world)
        super().__init__(coroutine, loop=loop, **others)

    def __hash__(self) -> int:
        return self.number


class SimulationLoop(asyncio.BaseEventLoop):
    """now: the world's time in seconds. world: the process of everything that is not under test."""

    def __init__(self, random: Random) -> None:
        super().__init__()
        self.now = 0.0
        self.numbers = count()
        self.world = Process("world")
        self.errors: list[BaseException] = []
        self._random = random
        self._processes = [self.world]
        self._graveyard: list[asyncio.Task[Any]] = []
        self._aims: list[tuple[str, Callable[[Process], None]]] = []
        self.set_task_factory(_new_task)
        self.set_exception_handler(_note_error)

    # what asyncio asks of a loop

    def time(self) -> float:
        return self.now - _PROCESS.get(self.world).behind_seconds

    def call_soon(  # type: ignore[override]  # the same, said with fewer types
        self, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        context = context or copy_context()
        handle = asyncio.Handle(callback, args, self, context)
        context.get(_PROCESS, self.world).ready.append(handle)
        return handle

    def call_at(  # type: ignore[override]  # the same, said with fewer types
        self, when: float, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        context = context or copy_context()
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(context.get(_PROCESS, self.world).timers, (when, next(self.numbers), timer))
        return timer

    def _run_once(self) -> None:
        able = [process for process in self._processes if process.ready and not process.halted]
        if not able:
            self._jump()
            return
        process = able[0] if len(able) == 1 else able[int(self._random.random() * len(able))]
        handle = process.ready.popleft()
        if not handle.cancelled():
            handle._run()
            process.took_step()

    def _jump(self) -> None:
        """To the next moment at which anybody has something to do; some time has always passed, as on a real clock."""
        moments = [process.next_time() for process in self._processes if not process.halted]
        self.now = max(self.now + TICK_SECONDS, min(moment for moment in moments if moment is not None))
        for process in self._processes:
            if not process.halted:
                process.ring(self.now)

    # processes

    @property
    def process(self) -> Process:
        """Whose callback is running."""
        return _PROCESS.get(self.world)

    def start(
        self, name: str, main: Callable[[Process], Coroutine[Any, Any, Any]]
    ) -> tuple[Process, asyncio.Task[Any]]:
        """A new process, and the task of its main function."""
        process = Process(name)
        self._processes.append(process)
        for aim in self._aims:
            self._aim_at(process, aim)
        return process, process.context.run(lambda: self.create_task(main(process), context=process.context))

    def at_next(self, event: str, strike: Callable[[Process], None]) -> None:
        """Strike whichever process next says this of itself; it may not have started yet."""
        aim = (event, strike)
        self._aims.append(aim)
        for process in self._processes:
            self._aim_at(process, aim)

    def _aim_at(self, process: Process, aim: tuple[str, Callable[[Process], None]]) -> None:
        def heard() -> None:
            if aim in self._aims:
                self._aims.remove(aim)
                aim[1](process)

        process.at_event(aim[0], heard)

    def kill(self, process: Process) -> None:
        """Everything that it had is gone; its tasks stay where they are, so that no line of theirs runs any more."""
        process.dead = True
        self._graveyard += [task for task in asyncio.all_tasks(self) if getattr(task, "process", None) is process]
        process.ready.clear()
        process.timers.clear()
        if process in self._processes:
            self._processes.remove(process)

    def halt(self, process: Process, seconds: float, *, clock_stands_still: bool) -> None:
        """It does not run for so long; what becomes due meanwhile is found when it goes on."""
        if process.halted or process.dead:
            return
        process.halted = True
        self.in_world(seconds, self._go_on, process, seconds if clock_stands_still else 0.0)

    def _go_on(self, process: Process, lost_seconds: float) -> None:
        process.halted = False
        process.behind_seconds += lost_seconds
        process.ring(self.now)

    def in_world(self, seconds: float, callback: Callable[..., object], *args: Any) -> None:
        """Call it after so many seconds of the world, whoever is stopped or dead by then."""
        self.call_at(self.now + seconds, callback, *args, context=self.world.context)

    async def travel(self, seconds: float) -> None:
        """Wait for something that happens in the world: its time goes on while our process is stopped."""
        arrived: asyncio.Future[None] = self.create_future()
        self.in_world(seconds, _arrive, arrived)
        await arrived

    def bury(self) -> None:
        """Drop every task that is left, quietly; nothing is looked at any more."""
        buried: set[asyncio.Task[Any]] = set()
        asyncio._set_running_loop(self)  # for those that start others while they are closed
        while left := {*self._graveyard, *asyncio.all_tasks(self)} - buried:
            for task in left:
                task._log_destroy_pending = False  # type: ignore[attr-defined]  # asyncio offers no other way
                _close(task.get_coro())
            buried |= left
        asyncio._set_running_loop(None)
        self._graveyard.clear()
        self.close()


def _new_task(loop: Any, coroutine: Any, **others: Any) -> asyncio.Task[Any]:
    return _Task(coroutine, loop=loop, **others)


def _arrive(arrived: asyncio.Future[None]) -> None:
    if not arrived.done():
        arrived.set_result(None)


def _note_error(loop: Any, context: dict[str, Any]) -> None:
    """What a callback has raised. What asyncio says of forgotten tasks comes when memory is freed: at no fixed time."""
    if "handle" in context and context.get("exception") is not None:
        loop.errors.append(context["exception"])


def _close(coroutine: Any) -> None:
    for _ in range(5):  # a `finally` that awaits is left where it waits; closed once more, it is over
        with suppress(BaseException):
            coroutine.close()
            return
