"""A send that takes too long is cut off; what became of it nobody can tell (G-09, G-13)."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from functools import partial

import pytest

from redrive.answers import Absent, Delivered, Unknown
from redrive.app import App
from redrive.message import Attempt
from redrive.policy import Backoff, Policy
from redrive.relay.build import SystemClock
from redrive.relay.dispatching import deadlines
from redrive.store.runtime.postgres import PostgresStore
from redrive.transports import functions
from tests.relay.harness import SECONDS_MAX, enqueue, history, relaying, states

pytestmark = [pytest.mark.req("G-09"), pytest.mark.req("G-13")]

AT_ONCE = Backoff(initial_seconds=0)
LATER = Policy(backoff=Backoff(initial_seconds=3600, max_seconds=3600, jitter="none"))
SOON_THEN_LATER = Policy(backoff=Backoff(initial_seconds=0.1, multiplier=100, max_seconds=3600, jitter="none"))


async def test_a_send_past_its_time_is_unknown_and_in_doubt(store: PostgresStore, app: App) -> None:
    cancelled: list[bool] = []

    @app.destination("shop", timeout_seconds=0.05, policy=LATER)
    async def handle(attempt: Attempt) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append(True)

    (id,) = await enqueue(store)
    async with relaying(store, app) as relay:
        await relay.seen.until("message.retried", code="TIMEOUT", in_doubt=True)
        (told,) = relay.seen.of("message.retried")
        assert 40 <= told["latency_ms"] < 5000
    assert cancelled == [True]
    assert await history(store, id) == [("settle", "retry", "TIMEOUT")]
    ((in_doubt, spent),) = await store.rows("SELECT in_doubt_since IS NOT NULL, spent FROM redrive.pending", [])
    assert (in_doubt, spent) == (True, 1)


async def test_a_handler_that_cancels_itself_is_unknown_too(store: PostgresStore, app: App) -> None:
    @app.destination("shop", policy=LATER)
    async def handle(attempt: Attempt) -> None:
        raise asyncio.CancelledError

    await enqueue(store, 3)
    async with relaying(store, app) as relay:
        await relay.seen.until("message.retried", count=3, code="CANCELLED", in_doubt=True)


async def test_a_handler_that_ignores_its_cancellation_is_abandoned_and_its_late_word_refused(
    store: PostgresStore, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its slot serves others meanwhile, and what it says in the end changes nothing."""
    monkeypatch.setattr(deadlines, "ABANDON_SECONDS", 0.1)
    release = asyncio.Event()
    deaf_id: list[object] = []

    @app.destination("shop", concurrency=1, timeout_seconds=0.1, policy=LATER)
    async def handle(attempt: Attempt) -> Delivered:
        if attempt.payload.get("deaf"):
            deaf_id.append(attempt.id)
            await ignoring_cancellation(release)
        return Delivered("late")

    (deaf,) = await enqueue(store, body=b'{"deaf":true}')
    async with relaying(store, app) as relay:
        await relay.seen.that(lambda: bool(deaf_id), what="the deaf one to run")
        (other,) = await enqueue(store)
        await relay.seen.until("message.retried", id=deaf, code="TIMEOUT", in_doubt=True)
        await relay.seen.until("message.delivered", id=other)
        release.set()
        await relay.seen.until("message.refused", id=deaf, tenant="default")
    assert await history(store, deaf) == [("settle", "retry", "TIMEOUT")]
    assert await states(store) == {"pending": 1, "delivered": 1}


async def test_what_waits_behind_a_handler_that_is_abandoned_gets_its_slot(
    store: PostgresStore, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Claimed together with it, and nothing comes later that would make the relay look."""
    monkeypatch.setattr(deadlines, "ABANDON_SECONDS", 0.1)
    release = asyncio.Event()
    begun: list[object] = []

    @app.destination("shop", concurrency=1, timeout_seconds=0.1, policy=LATER)
    async def handle(attempt: Attempt) -> None:
        begun.append(attempt.id)
        if len(begun) == 2:
            await ignoring_cancellation(release)

    await enqueue(store)
    async with relaying(store, app) as relay:
        await relay.seen.until("message.delivered")  # quick, so that it claims ahead
        await enqueue(store, 5)
        try:
            await relay.seen.until("message.retried", code="TIMEOUT", in_doubt=True)
            await relay.seen.until("message.delivered", count=5)
        finally:
            release.set()
    assert len(begun) == 6


async def test_a_lookup_that_ignores_its_cancellation_is_abandoned_and_nothing_is_sent_after_it(
    store: PostgresStore, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its claim is settled long since, and its lease would last."""
    monkeypatch.setattr(deadlines, "ABANDON_SECONDS", 0.1)
    release = asyncio.Event()
    sent: list[int] = []

    async def lookup(attempt: Attempt) -> Absent:
        await ignoring_cancellation(release)
        return Absent()

    @app.destination("shop", timeout_seconds=0.05, lookup=lookup, policy=SOON_THEN_LATER)
    async def handle(attempt: Attempt) -> None:
        sent.append(attempt.number)
        raise Unknown("LOST")

    (id,) = await enqueue(store)
    async with relaying(store, app) as relay:
        await relay.seen.until("message.retried", code="TIMEOUT", in_doubt=True)
        release.set()
        await relay.seen.until("message.refused", id=id)
    assert sent == [1]


async def ignoring_cancellation(release: asyncio.Event) -> None:
    while not release.is_set():
        with suppress(asyncio.CancelledError):
            await release.wait()


@pytest.mark.req("G-31")
async def test_a_message_that_never_returns_spends_its_budget_and_no_thread_of_its_neighbours(
    store: PostgresStore, app: App
) -> None:
    release = threading.Event()
    attempts = 6

    @app.destination("slow", concurrency=3, timeout_seconds=0.1, policy=Policy(attempts=attempts, backoff=AT_ONCE))
    def handle(attempt: Attempt) -> None:
        if attempt.payload["hangs"]:
            release.wait(SECONDS_MAX)

    (stuck,) = await enqueue(store, destination="slow", body=b'{"hangs": true}')
    async with relaying(store, app) as relay:
        await relay.seen.until("message.parked", id=stuck)  # as many threads as attempts are gone for good
        await enqueue(store, 20, destination="slow", body=b'{"hangs": false}')
        await relay.seen.until("message.delivered", count=20, destination="slow")
        release.set()
    assert len(await history(store, stuck)) == attempts


async def test_a_thread_that_runs_on_costs_its_own_destination_a_thread_and_nobody_an_attempt(
    store: PostgresStore, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pool is full with what timed out: what has not begun is handed back unspent, other destinations go on."""
    monkeypatch.setattr(functions, "ABANDONED_MAX", 0)
    release = threading.Event()
    begun: list[object] = []

    @app.destination("slow", concurrency=1, timeout_seconds=0.1, policy=LATER)
    def handle(attempt: Attempt) -> None:
        begun.append(attempt.id)
        if len(begun) == 1:
            release.wait(SECONDS_MAX)

    @app.destination("shop")
    async def other(attempt: Attempt) -> None: ...

    first, second = await enqueue(store, 2, destination="slow")
    async with relaying(store, app) as relay:
        await relay.seen.until("message.retried", code="TIMEOUT", in_doubt=True)
        await relay.seen.until("hand_back.stop", count=2)
        await enqueue(store, 5)
        await relay.seen.until("message.delivered", count=5, destination="shop")
        assert len(begun) == 1
        release.set()
        await relay.seen.until("message.delivered", destination="slow")
    left = {first, second} - {begun[0]}
    rows = [entry for id in left for entry in await store.history(id)]
    assert {row.spent for row in rows if row.verb == "hand_back"} == {0}
    assert rows[-1].closed == "delivered"


async def test_a_lookup_and_a_validation_have_a_time_of_their_own(store: PostgresStore, app: App) -> None:
    """Each takes most of the timeout: together they may take longer than one."""
    clock = asyncio.get_running_loop().time
    took: list[float] = []

    async def validate(attempt: Attempt) -> None:
        took.append(clock())
        await asyncio.sleep(0.25)

    @app.destination("shop", timeout_seconds=0.3, validate=validate)
    async def handle(attempt: Attempt) -> None:
        await asyncio.sleep(0.2)
        took.append(clock())

    await enqueue(store)
    async with relaying(store, app) as relay:
        await relay.seen.until("message.delivered")
    assert took[1] - took[0] > 0.3


@pytest.mark.parametrize("in_doubt", [False, True])
async def test_a_send_has_its_own_timeout_however_little_its_validation_or_lookup_took(
    store: PostgresStore, app: App, *, in_doubt: bool
) -> None:
    """What they left of theirs is not the send's: "absent" is believed counting from when a send must have ended."""
    left: list[float] = []

    async def validate(attempt: Attempt) -> None: ...

    async def lookup(attempt: Attempt) -> Absent:
        return Absent()

    @app.destination("shop", timeout_seconds=100, validate=validate, lookup=lookup)
    async def handle(attempt: Attempt) -> None:
        (slot,) = relay.relay._queues["shop"].slots
        assert slot.deadline is not None
        left.append(slot.deadline - SystemClock().monotonic())

    await enqueue(store)
    if in_doubt:
        await store.rows("UPDATE redrive.pending SET in_doubt_since = now() RETURNING 1", [])
    async with relaying(store, app) as relay:
        await relay.seen.until("message.delivered")
    assert left[0] <= 100


@pytest.mark.req("G-31")
async def test_a_message_whose_thread_is_abandoned_twice_runs_in_a_child_process_next(
    store: PostgresStore, app: App
) -> None:
    """A thread cannot be ended, a process can: so one message keeps two threads of a relay at most."""
    release = threading.Event()

    @app.destination("slow", concurrency=3, timeout_seconds=0.1, policy=Policy(attempts=6, backoff=AT_ONCE))
    def handle(attempt: Attempt) -> None:
        release.wait(SECONDS_MAX)

    (stuck,) = await enqueue(store, destination="slow")
    async with relaying(store, app, has_children=True) as relay:
        await relay.seen.until("message.retried", id=stuck, count=2)
        release.set()
    rows = await store.rows("SELECT suspect, crashes, spent FROM redrive.pending", [])
    assert [tuple(row) for row in rows] == [(True, 0, 2)]


@pytest.mark.req("G-31")
async def test_when_many_threads_are_abandoned_further_ones_are_left_to_child_processes(
    store: PostgresStore, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond a quarter of the bound at the first time, so that the bound is not reached."""
    monkeypatch.setattr(functions, "ABANDONED_MAX", 4)
    release = threading.Event()

    @app.destination("slow", concurrency=4, timeout_seconds=0.1, policy=LATER)
    def handle(attempt: Attempt) -> None:
        release.wait(SECONDS_MAX)

    await enqueue(store, 4, destination="slow")
    async with relaying(store, app, has_children=True) as relay:
        await relay.seen.until("message.retried", count=4)
        release.set()
    rows = await store.rows("SELECT suspect, count(*) FROM redrive.pending GROUP BY 1 ORDER BY 1", [])
    assert [tuple(row) for row in rows] == [(False, 1), (True, 3)]


@pytest.mark.req("G-31")
async def test_beyond_the_bound_what_is_claimed_goes_to_a_child_process_and_other_destinations_go_on(
    store: PostgresStore, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(functions, "ABANDONED_MAX", 1)
    release = threading.Event()

    @app.destination("slow", concurrency=2, timeout_seconds=0.1, policy=LATER)
    def handle(attempt: Attempt) -> None:
        if attempt.payload["hangs"]:
            release.wait(SECONDS_MAX)

    @app.destination("shop")
    async def other(attempt: Attempt) -> None: ...

    await enqueue(store, 2, destination="slow", body=b'{"hangs": true}')
    async with relaying(store, app, has_children=True) as relay:
        await relay.seen.until("message.retried", count=2)
        healthy = await enqueue(store, 3, destination="slow", body=b'{"hangs": false}')
        await enqueue(store, 3)
        await relay.seen.until("message.delivered", count=3, destination="shop")
        back = partial(relay.seen.of, "hand_back.stop", suspect=True)
        await relay.seen.that(lambda: sum(values["count"] for values in back()) == 3, what="all to be handed back")
        assert not relay.seen.of("message.delivered", destination="slow")
        release.set()  # threads come free: the destination goes on here
        transport = app.destinations["slow"].transport
        assert isinstance(transport, functions.FunctionTransport)
        await relay.seen.that(transport.has_threads, what="threads")
        await enqueue(store, 1, destination="slow", body=b'{"hangs": false}')
        await relay.seen.until("message.delivered", destination="slow")
    rows = await store.rows("SELECT suspect, spent FROM redrive.pending WHERE id = ANY (%s)", [healthy])
    assert [tuple(row) for row in rows] == 3 * [(True, 0)]  # unspent, and for a child process
