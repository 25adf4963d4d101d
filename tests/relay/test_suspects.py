"""Messages that came back from a crash are run one at a time, apart; what cannot run them does not run hot (G-18)."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest

import redrive
from redrive.app import App
from redrive.message import Attempt, MessageId, NewMessage, WorkerId
from redrive.ports import ClaimRequest, Reaped, TransientFailure
from redrive.relay.claiming import claimer
from redrive.relay.crash.child_events import STARTED, WAITING
from redrive.relay.crash.child_process import CHILD_NOT_STARTED, child
from redrive.relay.crash.suspects import CHILDREN_MAX, OVERDUE, START_SECONDS_MAX, RunSuspects, Suspects
from redrive.relay.process import RelayProcess
from redrive.settings import RelayLimits
from redrive.store.runtime.postgres import PostgresStore
from redrive.testing import ManualClock
from tests.model_store.model import ModelStore
from tests.model_store.transitions import Pending
from tests.relay.harness import Gate, Running, Seen, enqueue, processing, states
from tests.support import messages as m

pytestmark = pytest.mark.req("G-18")


async def crash(store: PostgresStore, count: int) -> list[MessageId]:
    """That many messages that a dead worker had."""
    ids = await enqueue(store, count)
    await store.claim(m.OTHER_WORKER, m.PLAIN_ROOMS, lease_seconds=60)
    assert (await store.reap(limit=1000, worker=m.OTHER_WORKER)).requeued == count
    return ids


async def test_suspects_run_alone_one_at_a_time_while_healthy_work_goes_on(
    database: str, store: PostgresStore, app: App
) -> None:
    """No app_spec: here in this process, each still the only lease of a worker of its own."""
    gate = Gate()
    alone: dict[object, int] = {}

    @app.destination("shop", concurrency=5)
    async def handle(attempt: Attempt) -> None:
        if attempt.alone:
            leases = await store.rows(
                "SELECT count(*) FROM redrive.lease WHERE worker = (SELECT worker FROM redrive.lease WHERE id = %s)",
                [attempt.id],
            )
            alone[attempt.id] = int(leases[0][0])
            await gate(attempt.id)

    suspects = await crash(store, 4)
    async with processing(database, app) as seen:
        await seen.that(lambda: gate.inside == 1, what="the first suspect to run")
        healthy = await enqueue(store, 10)
        await seen.until("message.delivered", count=10)
        assert gate.most == 1
        gate.open()
        await seen.until("message.delivered", count=14)
        await seen.until("suspects.ended", code=0)
    assert gate.most == 1
    assert alone == dict.fromkeys(suspects, 1)
    assert not set(alone) & set(healthy)
    assert await store.rows("SELECT 1 FROM redrive.relay", []) == []
    assert await states(store) == {"delivered": 14}


async def test_a_stop_lets_the_running_suspect_end_and_counts_no_crash(
    database: str, store: PostgresStore, app: App
) -> None:
    gate = Gate()

    @app.destination("shop")
    async def handle(attempt: Attempt) -> None:
        await gate(attempt.id)

    first, second = await crash(store, 2)
    async with processing(database, app) as seen:
        await seen.that(lambda: gate.inside == 1, what="a suspect to run")
        seen.events.subscribe(lambda *_: gate.open(), "relay.stopped")
    assert await states(store) == {"delivered": 1, "pending": 1}
    rows = await store.rows("SELECT crashes, suspect FROM redrive.pending", [])
    assert [tuple(row) for row in rows] == [(0, True)]
    verbs = [entry.verb for id in (first, second) for entry in await store.history(id)]
    assert sorted(verbs) == ["reap", "reap", "settle"]


@pytest.mark.req("G-31")
async def test_a_suspect_that_an_open_transaction_holds_keeps_no_other_from_running(
    database: str, store: PostgresStore, app: App
) -> None:
    """An application has cancelled it and has not committed: nothing is started for it, the others run."""

    @app.destination("shop")
    async def handle(attempt: Attempt) -> None: ...

    first, *others = await crash(store, 3)
    with psycopg.connect(database) as caller:
        caller.execute("SELECT redrive.cancel_1(%s)", [first])
        async with processing(database, app) as seen:
            await seen.until("message.delivered", count=len(others))
            await seen.until("suspects.ended", code=0)
            await seen.next("suspect_destinations.stop", count=2)
        assert len(seen.of("suspects.spawned")) == 1
        assert await store.suspect_destinations(["shop"]) == []
    assert await store.suspect_destinations(["shop"]) == ["shop"]


@pytest.mark.req("G-31")
async def test_a_suspect_whose_outcome_an_open_transaction_holds_up_keeps_no_place(
    database: str, store: PostgresStore, app: App
) -> None:
    """It was sent, and an application holds its claim: its process waits for that, another one runs the others."""
    gate = Gate()
    ids = await crash(store, 3)

    @app.destination("shop")
    async def handle(attempt: Attempt) -> None:
        if attempt.id == ids[0]:
            await gate(attempt.id)

    async with processing(database, app) as seen:
        await seen.that(lambda: gate.inside == 1, what="the first suspect to run")
        with psycopg.connect(database) as caller:
            caller.execute("SELECT redrive.cancel_1(%s)", [ids[0]])
            gate.open()
            await seen.until("suspects.waiting")
            await seen.until("message.delivered", count=2)
            assert not seen.of("message.delivered", id=ids[0])
        await seen.until("message.delivered", id=ids[0])
        await seen.until("suspects.ended", count=2, code=0)
    assert await states(store) == {"delivered": 3}
    assert {entry.verb for id in ids for entry in await store.history(id)} == {"reap", "settle"}


@pytest.mark.req("G-31")
async def test_a_turn_ends_although_suspects_are_left(
    store: PostgresStore, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claimer, "TURN_SECONDS", 0.0)

    @app.destination("shop")
    async def handle(attempt: Attempt) -> None: ...

    await crash(store, 3)
    running = Running(store, app, Seen(), suspects_only=True)
    await running.ended()
    assert (await states(store))["pending"] >= 2
    assert await store.leases_of(running.worker) == []


# the parent of child processes


class Bench:
    """Suspects over a model store, with children that do what the test says, each for at most a minute."""

    def __init__(self, run_alone: RunSuspects, *, destinations: Sequence[str] = ("shop",)) -> None:
        self.store = ModelStore()
        self.clock = ManualClock()
        self.seen = Seen()
        self.destinations = destinations
        for name in destinations:
            self.store.enqueue(NewMessage(name, {}))
        self.suspects = Suspects(
            self.store,
            dict.fromkeys(destinations, 60.0),
            run_alone,
            clock=self.clock,
            random=Random(1),
            events=self.seen.events,
        )

    async def crash(self) -> None:
        claim_requests = [ClaimRequest(name, 1, 10) for name in self.destinations]
        await self.store.claim(m.OTHER_WORKER, claim_requests, lease_seconds=60)
        await self.store.reap(limit=100, worker=m.OTHER_WORKER)

    async def advance(self, seconds: float) -> None:
        """And let everything run that can."""
        self.clock.advance(seconds)
        await self.settled()

    async def settled(self) -> None:
        """Nothing here waits for anything but the clock and the test."""
        for _ in range(100):
            await asyncio.sleep(0)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.Task[None]]:
        task = asyncio.create_task(self.suspects.run())
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.wait([task])


class Children:
    """Children that run until they are told to end, or asked to stop."""

    def __init__(self) -> None:
        self.running: dict[str, asyncio.Future[int]] = {}
        self.started: list[str] = []
        self.stopped: list[str] = []
        self.on_told: dict[str, Callable[[str], None]] = {}

    async def __call__(self, worker: WorkerId, destination: str, on_told: Callable[[str], None]) -> int:
        self.started.append(destination)
        self.on_told[destination] = on_told
        ending = self.running[destination] = asyncio.get_running_loop().create_future()
        try:
            return int(await ending)
        except asyncio.CancelledError:
            self.stopped.append(destination)
            raise
        finally:
            if self.running.get(destination) is ending:
                del self.running[destination]


async def never(worker: WorkerId, destination: str, on_told: Callable[[str], None]) -> int:
    raise AssertionError


async def test_nothing_is_started_while_there_is_no_suspect() -> None:
    bench = Bench(never)
    async with bench.running():
        await bench.settled()
    assert bench.seen.of("suspects.spawned") == []


@pytest.mark.req("G-31")
async def test_each_destination_has_a_child_of_its_own_and_none_waits_for_another() -> None:
    children = Children()
    bench = Bench(children, destinations=["fast", "hanging"])
    await bench.crash()
    async with bench.running():
        await bench.seen.that(lambda: len(children.running) == 2, what="a child of each")
        children.running["fast"].set_result(0)
        await bench.seen.until("suspects.ended", destination="fast", code=0)
        assert list(children.running) == ["hanging"]
    assert children.started == ["fast", "hanging"]


@pytest.mark.req("G-31")
async def test_children_are_few_and_destinations_have_their_turns() -> None:
    names = [f"d{n}" for n in range(6)]
    children = Children()
    bench = Bench(children, destinations=names)
    await bench.crash()
    async with bench.running():
        await bench.seen.that(lambda: len(children.running) == CHILDREN_MAX, what="as many as may be")
        for _ in range(8):  # all of them have suspects still, so each comes again when the others have had their turn
            next(iter(children.running.values())).set_result(0)
            await bench.advance(1.0)
            assert len(children.running) == CHILDREN_MAX
    assert children.started == names + names


async def test_a_child_that_dies_at_its_work_is_buried_at_once_and_the_next_starts_soon() -> None:
    starts: list[WorkerId] = []

    async def die(worker: WorkerId, destination: str, on_told: Callable[[str], None]) -> int:
        starts.append(worker)
        assert (await bench.store.claim_suspect(worker, ["shop"], lease_seconds=60)).attempts
        return -9

    bench = Bench(die)
    await bench.crash()
    async with bench.running():
        await bench.settled()
        assert bench.seen.of("reap.stop", requeued=1)
        await bench.advance(0.2)
    assert len(set(starts)) == 2
    (pending,) = bench.store.places().values()
    assert isinstance(pending, Pending)
    assert pending.crashes == 2


@pytest.mark.parametrize("code", [1, 127, -15])
async def test_a_child_that_dies_before_its_work_is_not_started_again_for_five_seconds(code: int) -> None:
    """The app cannot be imported, say: every start costs a process, and helps nobody."""
    starts: list[float] = []

    async def die(worker: WorkerId, destination: str, on_told: Callable[[str], None]) -> int:
        starts.append(bench.clock.monotonic())
        return code

    bench = Bench(die)
    await bench.crash()
    async with bench.running():
        await bench.settled()
        while bench.clock.monotonic() < 10.5:
            await bench.advance(0.5)
    assert starts == [0.0, 5.0, 10.0]


@pytest.mark.req("G-31")
async def test_a_child_that_does_not_end_by_itself_is_ended_and_its_lease_counted_as_a_crash() -> None:
    """An event loop that a handler blocks, say: the child neither ends its turn nor renews."""
    begun = asyncio.Event()

    async def hang(worker: WorkerId, destination: str, on_told: Callable[[str], None]) -> int:
        assert (await bench.store.claim_suspect(worker, ["shop"], lease_seconds=60)).attempts
        begun.set()
        on_told(STARTED)
        await asyncio.Event().wait()
        return 0

    bench = Bench(hang)
    await bench.crash()
    async with bench.running():
        await bench.settled()
        assert begun.is_set()
        await bench.advance(59)
        assert not bench.seen.of("suspects.ended")
        await bench.advance(1)
    assert bench.seen.of("suspects.ended", code=OVERDUE)
    (pending,) = bench.store.places().values()
    assert isinstance(pending, Pending)
    assert (pending.crashes, pending.suspect) == (1, True)


@pytest.mark.req("G-31")
async def test_a_child_whose_start_takes_long_still_has_its_whole_turn() -> None:
    """On a machine under load: else each child would be ended before it has run anything."""
    children = Children()
    bench = Bench(children)
    await bench.crash()
    async with bench.running():
        await bench.settled()
        await bench.advance(START_SECONDS_MAX - 1)
        children.on_told["shop"](STARTED)
        await bench.settled()
        await bench.advance(59)
        assert not bench.seen.of("suspects.ended")
        await bench.advance(1)
    assert bench.seen.of("suspects.ended", code=OVERDUE)


async def test_a_child_that_never_comes_to_its_start_is_ended() -> None:
    children = Children()
    bench = Bench(children)
    await bench.crash()
    async with bench.running():
        await bench.settled()
        await bench.advance(START_SECONDS_MAX)
        assert bench.seen.of("suspects.ended", code=OVERDUE)


@pytest.mark.req("G-31")
async def test_a_child_that_only_waits_to_write_its_outcome_gives_up_its_place() -> None:
    children = Children()
    names = [f"d{n}" for n in range(CHILDREN_MAX + 1)]
    bench = Bench(children, destinations=names)
    await bench.crash()
    async with bench.running():
        await bench.settled()
        assert list(children.running) == names[:-1]
        waiting = children.running["d0"]
        children.on_told["d0"](WAITING)
        await bench.settled()
        assert names[-1] in children.running
        children.running["d1"].set_result(0)
        await bench.settled()
        assert children.started.count("d0") == 2  # its destination is served by another one
        await bench.advance(3600)
        assert not waiting.done()  # it may wait for however long the transaction takes
        waiting.set_result(0)
        await bench.settled()
    assert bench.seen.of("suspects.ended", destination="d0", code=0)


async def test_a_database_that_is_away_is_looked_at_again_in_a_second() -> None:
    class Away(ModelStore):
        async def suspect_destinations(self, *arguments: Any, **options: Any) -> Sequence[str]:
            raise TransientFailure

    bench = Bench(never)
    bench.suspects._store = Away()
    async with bench.running():
        await bench.seen.that(lambda: bench.clock.next_wake == 1.0, what="it to wait a second")


async def test_a_stop_while_the_database_is_away_is_a_stop_and_no_failure() -> None:
    class Away(ModelStore):
        async def reap(self, **options: object) -> Reaped:
            raise TransientFailure

    children = Children()
    bench = Bench(children)
    await bench.crash()
    away = Away()
    away.__dict__.update(bench.store.__dict__)
    bench.suspects._store = away
    async with bench.running() as running:
        await bench.seen.that(lambda: bool(children.running), what="a child")
    assert running.cancelled()
    assert children.stopped == ["shop"]


def process(app_spec: str) -> RelayProcess:
    app = App()

    @app.destination("shop")
    async def handle(attempt: Attempt) -> None: ...

    return RelayProcess(app=app, dsn="host=nowhere.invalid", app_spec=app_spec, limits=RelayLimits(stop_seconds=0))


async def test_a_child_whose_app_cannot_be_imported_says_so_by_its_exit_code(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(redrive.__file__).parents[1]))
    code = await child(process("no_such_module_anywhere:app"))(m.WORKER, "shop", lambda _: None)
    assert code == 1
    assert "no_such_module_anywhere" in capfd.readouterr().err


async def test_a_child_that_cannot_be_started_is_not_the_end_of_the_relay(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no-python"))
    assert await child(process("shop:app"))(m.WORKER, "shop", lambda _: None) == CHILD_NOT_STARTED
