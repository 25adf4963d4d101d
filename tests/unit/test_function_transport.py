"""A plain function as a transport: `def` in bounded threads, `async def` on the loop, exceptions classified."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from redrive.answers import Answer, Delivered, Found, Retryable, Terminal, Unknown
from redrive.message import Attempt, MessageId
from redrive.ports import NotBegun
from redrive.transports import functions
from redrive.transports.functions import THREADS, Classify, FunctionTransport, Handler
from tests.support.messages import attempt

ATTEMPT = attempt()
SECONDS_MAX = 10


class Made:
    """Transports of one test; their threads are let go at its end."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self._made: list[FunctionTransport] = []

    def __call__(self, handler: Handler, *, threads: int = 2, **options: Any) -> FunctionTransport:
        self._made.append(FunctionTransport(handler, threads=threads, **options))
        return self._made[-1]

    def close(self) -> None:
        self.released.set()
        for transport in self._made:
            transport.close()


@pytest.fixture
async def make() -> AsyncIterator[Made]:
    made = Made()
    yield made
    made.close()


def returned(value: Any) -> Callable[[Attempt], Any]:
    return lambda _: value


async def test_async_def_runs_on_the_event_loop(make: Made) -> None:
    async def handler(given: Attempt) -> Answer:
        assert threading.current_thread() is threading.main_thread()
        return Delivered(str(given.id))

    assert await make(handler).send(ATTEMPT) == Delivered(str(ATTEMPT.id))


async def test_def_runs_in_a_thread_named_for_it(make: Made) -> None:
    def deliver_mail(given: Attempt) -> Answer:
        return Delivered(threading.current_thread().name)

    answer = await make(deliver_mail).send(ATTEMPT)
    assert isinstance(answer, Delivered)
    assert answer.reference is not None
    assert answer.reference.startswith(f"{THREADS} deliver_mail")


class AsyncCallable:
    async def __call__(self, given: Attempt) -> str:
        return threading.current_thread().name


class PlainCallable:
    def __call__(self, given: Attempt) -> str:
        return threading.current_thread().name

    async def method(self, given: Attempt) -> str:
        return threading.current_thread().name


async def with_prefix(prefix: str, given: Attempt) -> str:
    return prefix + threading.current_thread().name


@pytest.mark.parametrize(
    ("handler", "on_loop"),
    [
        (AsyncCallable(), True),
        (PlainCallable(), False),
        (PlainCallable().method, True),
        (functools.partial(with_prefix, ""), True),
        (lambda given: with_prefix("", given), True),
    ],
    ids=["async object", "object", "method", "partial", "function that returns an awaitable"],
)
async def test_every_kind_of_callable_is_called_where_it_belongs(make: Made, handler: Handler, on_loop: bool) -> None:
    name: Any = await make(handler).send(ATTEMPT)
    assert (name == threading.main_thread().name) is on_loop


@pytest.mark.parametrize("value", [None, Delivered("r"), Retryable("BUSY"), "garbage"])
async def test_what_is_returned_is_handed_on(make: Made, value: Any) -> None:
    assert await make(returned(value)).send(ATTEMPT) is value


@pytest.mark.parametrize("error", [Terminal("NO"), Unknown("LOST"), KeyError("x"), SystemExit(3), KeyboardInterrupt()])
async def test_what_a_thread_raises_is_raised_here(make: Made, error: BaseException) -> None:
    def handler(given: Attempt) -> None:
        raise error

    with pytest.raises(type(error)) as raised:
        await make(handler).send(ATTEMPT)
    assert raised.value is error


async def test_stop_iteration_out_of_a_thread_does_not_wait_for_ever(make: Made) -> None:
    def handler(given: Attempt) -> None:
        raise StopIteration("data of the message")

    async with asyncio.timeout(SECONDS_MAX):
        with pytest.raises(RuntimeError, match=r"^The handler raised StopIteration\.$"):
            await make(handler).send(ATTEMPT)


@pytest.fixture
def no_spare_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functions, "ABANDONED_MAX", 0)


@pytest.mark.req("G-09")
@pytest.mark.usefixtures("no_spare_threads")
async def test_threads_are_bounded(make: Made) -> None:
    running: list[int] = []
    most = threading.Semaphore(3)

    def handler(given: Attempt) -> int:
        assert most.acquire(blocking=False), "more threads than allowed"
        running.append(1)
        make.released.wait(SECONDS_MAX)
        most.release()
        return len(running)

    transport = make(handler, threads=3)
    sends = [asyncio.ensure_future(transport.send(ATTEMPT)) for _ in range(9)]
    await until(lambda: len(running) == 3)
    make.released.set()
    await asyncio.gather(*sends)
    assert len(running) == 9


@pytest.mark.req("G-09")
@pytest.mark.usefixtures("no_spare_threads")
async def test_a_send_that_is_cut_off_before_its_first_line_has_not_begun(make: Made) -> None:
    """The pool is full, so nothing of it ran: the claim can go back as it was."""
    begun: list[Attempt] = []

    def handler(given: Attempt) -> None:
        begun.append(given)
        make.released.wait(SECONDS_MAX)

    transport = make(handler, threads=1)
    first = asyncio.ensure_future(transport.send(ATTEMPT))
    await until(lambda: len(begun) == 1)
    second = asyncio.ensure_future(transport.send(ATTEMPT))
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(NotBegun):
        await second
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    make.released.set()
    assert len(begun) == 1


async def test_validate_and_lookup_are_there_only_where_they_were_given(make: Made) -> None:
    plain = make(returned(None))
    assert plain.validate is None
    assert plain.lookup is None
    full = make(returned(None), validate=returned(None), lookup=returned(Found("r")))
    assert full.validate is not None
    assert full.lookup is not None
    assert await full.lookup(ATTEMPT) == Found("r")


# classify


class OutOfStock(ValueError): ...


class Backordered(OutOfStock): ...


TABLE: Classify = {
    ValueError: Terminal("INVALID"),
    OutOfStock: lambda error: Retryable("OUT_OF_STOCK", text=type(error).__name__),
    ConnectionResetError: Terminal("OURS"),
    SystemExit: Unknown("EXITED"),
}


@pytest.mark.req("G-10")
@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("x"), Terminal("INVALID")),
        (UnicodeError("x"), Terminal("INVALID")),
        (OutOfStock("x"), Retryable("OUT_OF_STOCK", text="OutOfStock")),
        (Backordered("x"), Retryable("OUT_OF_STOCK", text="Backordered")),
        (ConnectionResetError(), Terminal("OURS")),
        (ConnectionAbortedError(), Unknown("CONNECTION_LOST")),
        (SystemExit(1), Unknown("EXITED")),
        (KeyError("x"), None),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_the_users_table_goes_by_the_nearest_class_and_before_ours(
    make: Made, error: BaseException, expected: Answer | None
) -> None:
    assert make(returned(None), classify=TABLE).classify(error) == expected


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        while not condition():  # noqa: ASYNC110 - another thread makes it true
            await asyncio.sleep(0.001)


@pytest.mark.req("G-31")
@pytest.mark.parametrize("function", ["send", "validate", "lookup"])
async def test_a_function_that_was_given_up_and_runs_on_counts_until_its_thread_ends(
    make: Made, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    """Few are left beyond a quarter of the bound, none beyond the bound; one message has its second thread apart."""
    monkeypatch.setattr(functions, "ABANDONED_MAX", 4)

    begun: list[object] = []

    def hang(given: Attempt) -> None:
        begun.append(given.id)
        make.released.wait(SECONDS_MAX)

    transport = make(hang, validate=hang, lookup=hang, threads=3)
    others = [replace(ATTEMPT, id=MessageId(UUID(int=n))) for n in range(3)]
    seen: list[tuple[bool, bool, bool]] = []
    for given in [ATTEMPT, ATTEMPT, *others]:
        call = asyncio.ensure_future(getattr(transport, function)(given))
        await until(lambda: len(begun) > len(seen))
        call.cancel()
        await asyncio.wait([call])
        seen.append((transport.needs_own_process(given.id), transport.has_few_threads(), transport.has_threads()))
    assert seen == [
        (False, False, True),
        (True, True, True),
        (True, True, True),
        (True, True, True),
        (True, True, False),
    ]
    make.released.set()
    await until(lambda: not transport.has_few_threads())
    assert transport.has_threads()
    assert not transport.needs_own_process(ATTEMPT.id)
