"""Messages that came back from a crash are run one at a time, apart; what cannot run them does not run hot (G-18)."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random

import pytest

import redrive
from redrive.app import App
from redrive.message import Attempt, MessageId, NewMessage, WorkerId
from redrive.ports import Reaped, TransientFailure
from redrive.relay.limits import RelayLimits
from redrive.relay.run import CHILD_NOT_STARTED, RelayProcess, child
from redrive.relay.suspects import Suspects
from redrive.store.postgres import PostgresStore
from redrive.testing import ManualClock, ModelStore
from tests.relay.harness import Gate, Seen, enqueue, processing, states
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


# the parent of a child process


class Bench:
    """Suspects over a model store, with a child that does what the test says. pauses: between two looks."""

    def __init__(self, run_alone: Callable[[WorkerId], Awaitable[int]], *, suspects: int = 1) -> None:
        self.store = ModelStore()
        self.clock = ManualClock()
        self.seen = Seen()
        for _ in range(suspects):
            self.store.enqueue(NewMessage("shop", {}))
        self.suspects = Suspects(
            self.store, ["shop"], run_alone, clock=self.clock, random=Random(1), events=self.seen.events
        )

    async def crash(self) -> None:
        await self.store.claim(m.OTHER_WORKER, m.PLAIN_ROOMS, lease_seconds=60)
        await self.store.reap(limit=10, worker=m.OTHER_WORKER)


async def test_nothing_is_started_while_there_is_no_suspect() -> None:
    async def never(worker: WorkerId) -> int:
        raise AssertionError

    bench = Bench(never)
    assert await bench.suspects.run_once() == 1.0
    assert bench.seen.of("suspects.spawned") == []


async def test_a_child_that_dies_at_its_work_is_buried_at_once_and_the_next_starts_soon() -> None:
    async def die(worker: WorkerId) -> int:
        assert (await bench.store.claim_suspect(worker, ["shop"], lease_seconds=60)).attempts
        return -9

    bench = Bench(die)
    await bench.crash()
    assert await bench.suspects.run_once() == 0.2
    assert await bench.store.has_suspect(["shop"])
    assert bench.seen.of("reap.stop", requeued=1)


@pytest.mark.parametrize("code", [1, 127, -9])
async def test_a_child_that_dies_before_its_work_is_not_started_again_for_five_seconds(code: int) -> None:
    """The app cannot be imported, say: every start costs a process, and helps nobody."""
    starts: list[WorkerId] = []

    async def die(worker: WorkerId) -> int:
        starts.append(worker)
        return code

    bench = Bench(die)
    await bench.crash()
    running = asyncio.create_task(bench.suspects.run())
    await bench.seen.that(lambda: bench.clock.sleepers == 1, what="it to wait")
    for seconds, expected in ((4.9, 1), (0.2, 2), (4.8, 2), (0.3, 3)):
        bench.clock.advance(seconds)
        await bench.seen.that(lambda: bench.clock.sleepers == 1, what="it to wait again")
        assert len(starts) == expected
    running.cancel()
    await asyncio.wait([running])
    assert len(set(starts)) == 3


async def test_a_database_that_is_away_is_looked_at_again_in_a_second() -> None:
    class Away(ModelStore):
        async def has_suspect(self, *arguments: object, **options: object) -> bool:
            raise TransientFailure

    async def never(worker: WorkerId) -> int:
        raise AssertionError

    bench = Bench(never)
    bench.suspects._store = Away()
    running = asyncio.create_task(bench.suspects.run())
    await bench.seen.that(lambda: bench.clock.next_wake == 1.0, what="it to wait a second")
    running.cancel()
    await asyncio.wait([running])


async def test_a_stop_while_the_database_is_away_is_a_stop_and_no_failure() -> None:
    class Away(ModelStore):
        async def reap(self, **options: object) -> Reaped:
            raise TransientFailure

    begun = asyncio.Event()

    async def hang(worker: WorkerId) -> int:
        begun.set()
        await asyncio.Event().wait()
        return 0

    bench = Bench(hang)
    await bench.crash()
    away = Away()
    away.__dict__.update(bench.store.__dict__)
    bench.suspects._store = away
    running = asyncio.create_task(bench.suspects.run())
    async with asyncio.timeout(5):
        await begun.wait()
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled()


def process(app_spec: str) -> RelayProcess:
    return RelayProcess(app=App(), dsn="host=nowhere.invalid", app_spec=app_spec, limits=RelayLimits(stop_seconds=0))


async def test_a_child_whose_app_cannot_be_imported_says_so_by_its_exit_code(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(redrive.__file__).parents[1]))
    code = await child(process("no_such_module_anywhere:app"))(m.WORKER)
    assert code == 1
    assert "no_such_module_anywhere" in capfd.readouterr().err


async def test_a_child_that_cannot_be_started_is_not_the_end_of_the_relay(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no-python"))
    assert await child(process("shop:app"))(m.WORKER) == CHILD_NOT_STARTED
