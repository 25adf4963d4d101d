"""A plain function as a transport: what `@app.destination` makes of a handler.

`async def` runs on the relay's event loop; `def` runs in a bounded thread pool. A thread that times out is
abandoned and replaced, up to a bound, so that a message that never returns costs its neighbours nothing. Before
that bound such messages become suspects (`needs_own_process`): a child process runs them, and takes their threads
along when it ends. Beyond it, all messages of the destination do, until threads come free (`has_threads`). `None`
is `Delivered()`; exceptions go through the user's `classify` table and then through `network_errors`; the rest is a
bug (G-10).
"""

import asyncio
import inspect
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, Final

from redrive.answers import Answer, LookupAnswer
from redrive.message import Attempt, MessageId
from redrive.ports import NotBegun
from redrive.transports.network_errors import classify as classify_network_error

Handler = Callable[[Attempt], Any]
Classification = Answer | Callable[[BaseException], Answer]
Classify = Mapping[type[BaseException], Classification]


THREADS: Final = "redrive handler"  # how the threads of `def` handlers are named
GIVEN_UP_MAX: Final = 10_000  # of so many is remembered when their threads ended
ABANDONED_MAX = 32  # threads beyond those of the destination's concurrency, for handlers that timed out and still run
APART_FROM = 0.25  # of that many: from here on a message whose thread is abandoned runs in a child process next time


class FunctionTransport:
    """`validate` and `lookup` are None where there is none, as the dispatcher expects."""

    def __init__(
        self,
        handler: Handler,
        *,
        validate: Handler | None = None,
        lookup: Handler | None = None,
        classify: Classify | None = None,
        limit_key: Callable[[Attempt], str | None] | None = None,
        threads: int,
    ) -> None:
        # How many calls run at a time is for the relay to say; it does not count those that it has given up.
        self._threads = ThreadPoolExecutor(
            max_workers=threads + ABANDONED_MAX, thread_name_prefix=f"{THREADS} {getattr(handler, '__name__', '')}"
        )
        self._classify = dict(classify or {})
        self.limit_key = limit_key
        self._given_up: dict[MessageId, Future[Any]] = {}  # the latest of each message whose thread ran on
        self._given_up_ended: dict[MessageId, float] = {}
        self._abandoned: Counter[MessageId] = Counter()  # threads of functions that were given up and still run
        self._abandoned_max = ABANDONED_MAX
        # Around every call in a thread: for frameworks that keep connections by thread.
        self.around: Callable[[], AbstractContextManager[None]] = nullcontext
        self.send: Callable[[Attempt], Awaitable[Answer | None]] = self._awaitable(handler, sends=True)
        self.validate: Callable[[Attempt], Awaitable[None]] | None = validate and self._awaitable(validate)
        self.lookup: Callable[[Attempt], Awaitable[LookupAnswer]] | None = lookup and self._awaitable(lookup)

    def classify(self, error: BaseException) -> Answer | None:
        """None if it is not declared."""
        for kind in type(error).__mro__:
            if kind in self._classify:
                found = self._classify[kind]
                return found if isinstance(found, Answer) else found(error)
        return classify_network_error(error)

    def quiet_seconds(self, id: MessageId) -> float | None:
        """For how long no abandoned thread has run the handler with this message: 0 while one does, None where none
        was."""
        if id in self._given_up:
            return 0.0
        ended = self._given_up_ended.get(id)
        return None if ended is None else asyncio.get_running_loop().time() - ended

    def has_threads(self) -> bool:
        """The pool still has a thread for each call that may run at a time."""
        return self._abandoned.total() <= self._abandoned_max

    def has_few_threads(self) -> bool:
        """So many are abandoned that further ones should be abandoned in another process."""
        return self._abandoned.total() > APART_FROM * self._abandoned_max

    def needs_own_process(self, id: MessageId) -> bool:
        """A thread still runs it, and it is not the first, or too many threads have been abandoned already."""
        threads = self._abandoned[id]
        return threads > 1 or (threads == 1 and self.has_few_threads())

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _awaitable(self, function: Handler, *, sends: bool = False) -> Callable[[Attempt], Awaitable[Any]]:
        if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__):
            return function
        return lambda attempt: self._in_thread(function, attempt, sends=sends)

    async def _in_thread(self, function: Handler, attempt: Attempt, *, sends: bool) -> Any:
        running = self._threads.submit(_run, self.around, function, attempt)
        try:
            answer = await asyncio.wrap_future(running)
            # A `def` around an `async def`, as many decorators make them: only now can we see it.
            return await answer if inspect.isawaitable(answer) else answer
        except asyncio.CancelledError:
            if running.cancelled():
                raise NotBegun from None
            if not running.done():
                self._runs_on(running, attempt.id, sends=sends)
            raise

    def _runs_on(self, running: Future[Any], id: MessageId, *, sends: bool) -> None:
        """Remember it until its thread ends, and when that was if it sends."""
        loop = asyncio.get_running_loop()
        self._abandoned[id] += 1
        if sends:
            self._given_up[id] = running

        def ended() -> None:
            self._abandoned[id] -= 1
            if not self._abandoned[id]:
                del self._abandoned[id]
            if not sends:
                return
            self._given_up_ended.pop(id, None)
            self._given_up_ended[id] = loop.time()
            if len(self._given_up_ended) > GIVEN_UP_MAX:
                del self._given_up_ended[next(iter(self._given_up_ended))]
            if self._given_up.get(id) is running:
                del self._given_up[id]

        def tell(_: Future[Any]) -> None:
            with suppress(RuntimeError):  # the thread has outlived the loop, and with it the relay
                loop.call_soon_threadsafe(ended)

        running.add_done_callback(tell)


def _run(around: Callable[[], AbstractContextManager[None]], function: Handler, attempt: Attempt) -> Any:
    """A future cannot carry StopIteration (before Python 3.12 its awaiter would wait for ever)."""
    try:
        with around():
            return function(attempt)
    except StopIteration as error:
        raise RuntimeError("The handler raised StopIteration.") from error
