"""Duties: once at a time over all relays, noted, and no failing one is another's affair (G-17)."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from redrive.app import App, Duty
from redrive.events import Events
from redrive.message import Attempt
from redrive.ports import Store, TransientFailure
from redrive.recover.duties import run_duties, run_if_due
from redrive.relay.context import new_worker
from redrive.store.runtime.postgres import PostgresStore
from redrive.testing import ManualClock
from tests.model_store.model import ModelStore
from tests.relay.harness import Seen, processing
from tests.support import messages as m

pytestmark = pytest.mark.req("G-17")


async def test_among_several_loops_one_runs_a_duty_at_a_time(store: PostgresStore) -> None:
    inside = 0
    runs: list[int] = []

    async def work(given: Store) -> str:
        nonlocal inside
        inside += 1
        runs.append(inside)
        await asyncio.sleep(0)
        inside -= 1
        return "swept"

    duty = Duty(name="sweep", every_seconds=3600, run_once=work)
    seen = Seen()
    workers = [new_worker(Random()) for _ in range(8)]
    ran = await asyncio.gather(*(run_if_due(store, duty, worker=worker, events=seen.events) for worker in workers))
    assert ran.count(True) == 1
    assert runs == [1]
    rows = await store.rows("SELECT name, result, holder FROM redrive.duty", [])
    assert [tuple(row) for row in rows] == [("sweep", "swept", None)]


@pytest.mark.parametrize("error", [ZeroDivisionError("data"), SystemExit(1), KeyboardInterrupt()], ids=repr)
async def test_a_failing_duty_is_noted_and_stops_neither_itself_nor_another(error: BaseException) -> None:
    store, clock, seen = ModelStore(), ManualClock(), Seen()
    well: list[int] = []

    async def fail(given: Store) -> str:
        raise error

    async def work(given: Store) -> int:
        well.append(1)
        return len(well)

    duties = [
        Duty(name="bad", every_seconds=10, run_once=fail),
        Duty(name="good", every_seconds=10, run_once=work),
    ]
    running = asyncio.create_task(run_duties(store, duties, worker=m.WORKER, clock=clock, events=seen.events))
    for turn in range(1, 4):
        await seen.that(lambda: clock.sleepers == 2, what="both to wait for their next turn")
        assert len(well) == turn
        assert len(seen.of("duty.failed", duty="bad")) == turn
        store.advance(10)
        clock.advance(10)
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait([running])
    assert seen.of("duty.failed")[0]["error"] == type(error).__name__
    assert "data" not in repr(seen.all)


async def test_a_stop_ends_the_duty_that_runs_before_it_is_over() -> None:
    """Another relay may take it at once; else it would be kept for the time after which a holder is taken for dead."""
    ended: list[str] = []
    begun = asyncio.Event()

    class SlowlyEnding(ModelStore):
        async def end_duty(self, name: str, *values: Any, **named: Any) -> None:
            for _ in range(100):
                await asyncio.sleep(0)
            await super().end_duty(name, *values, **named)
            ended.append(name)

    async def hang(given: Store) -> None:
        begun.set()
        await asyncio.Event().wait()

    async def work(given: Store) -> None: ...

    store, clock, seen = SlowlyEnding(), ManualClock(), Seen()
    duties = [
        Duty(name="short", every_seconds=3600, run_once=work),
        Duty(name="long", every_seconds=3600, run_once=hang),
    ]
    running = asyncio.create_task(run_duties(store, duties, worker=m.WORKER, clock=clock, events=seen.events))
    await begun.wait()
    await seen.that(lambda: clock.sleepers == 1, what="the short one to be over")
    running.cancel()
    await asyncio.wait([running])
    assert ended == ["short", "long"]


async def test_a_stop_that_cuts_off_the_end_of_a_duty_ends_it_again() -> None:
    ending, ended = asyncio.Event(), []

    class CutOff(ModelStore):
        async def end_duty(self, name: str, *values: Any, **named: Any) -> None:
            if not ending.is_set():
                ending.set()
                await asyncio.Event().wait()
            await super().end_duty(name, *values, **named)
            ended.append(named["result"])

    async def work(given: Store) -> str:
        return "done"

    duty = Duty(name="short", every_seconds=3600, run_once=work)
    running = asyncio.create_task(run_duties(CutOff(), [duty], worker=m.WORKER, clock=ManualClock(), events=Events()))
    await ending.wait()
    running.cancel()
    await asyncio.wait([running])
    assert ended == ["stopped"]


@pytest.mark.parametrize("ends", ["fails", "hangs"])
async def test_a_stop_is_over_though_the_end_of_a_duty_fails(ends: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redrive.recover.duties.STOP_SECONDS", 0.05)
    begun = asyncio.Event()

    class Away(ModelStore):
        async def end_duty(self, name: str, *values: Any, **named: Any) -> None:
            if ends == "hangs":
                await asyncio.Event().wait()
            raise TransientFailure("away")

    async def hang(given: Store) -> None:
        begun.set()
        await asyncio.Event().wait()

    duty = Duty(name="long", every_seconds=3600, run_once=hang)
    running = asyncio.create_task(run_duties(Away(), [duty], worker=m.WORKER, clock=ManualClock(), events=Events()))
    await begun.wait()
    running.cancel()
    stopped, _ = await asyncio.wait([running], timeout=10)
    assert stopped
    assert len(asyncio.all_tasks()) == (1 if ends == "fails" else 2)  # what hangs is left behind, no more


async def test_a_rare_duty_does_not_wait_for_its_next_turn_because_the_database_was_away() -> None:
    class Away(ModelStore):
        away = True

        async def begin_duty(self, *arguments: object, **options: object) -> bool:
            if self.away:
                raise TransientFailure
            return await super().begin_duty(*arguments, **options)  # type: ignore[arg-type]  # handed on as they are

    store, clock, seen = Away(), ManualClock(), Seen()
    runs: list[int] = []

    async def work(given: Store) -> None:
        runs.append(1)

    duty = Duty(name="partitions", every_seconds=3600, run_once=work)
    running = asyncio.create_task(run_duties(store, [duty], worker=m.WORKER, clock=clock, events=seen.events))
    await seen.until("relay.unreachable", during="duty")
    await seen.that(lambda: clock.next_wake == 5.0, what="it to wait five seconds, not an hour")
    store.away = False
    clock.advance(5)
    await seen.that(lambda: clock.next_wake == 3605.0, what="it to wait for its next turn")
    assert runs == [1]
    running.cancel()
    await asyncio.wait([running])


async def test_a_process_runs_the_engines_duties_and_the_apps_and_says_what_they_did(
    database: str, store: PostgresStore, app: App
) -> None:
    @app.destination("shop")
    async def handle(attempt: Attempt) -> None: ...

    @app.duty("greet", every_seconds=3600)
    async def greet(given: Store) -> str:
        return "hello"

    @app.duty("broken", every_seconds=3600)
    async def broken(given: Store) -> str:
        raise RuntimeError("not today")

    async with processing(database, app) as seen:
        names = (
            "reap",
            "expire",
            "mend_lanes",
            "vacuum",
            "fold_failures",
            "replay",
            "partitions",
            "forget_relays",
            "forget_inbox",
            "greet",
            "broken",
        )
        for name in names:
            await seen.until("end_duty.stop", duty=name)
        assert not any(told for told in seen.of("relay.stopping"))
    rows = await store.rows("SELECT name, result FROM redrive.duty", [])
    results = {row[0]: row[1] for row in rows}
    assert set(results) == set(names)
    assert (results["greet"], results["broken"]) == ("hello", "failed: RuntimeError")


async def test_two_processes_share_the_duties(database: str, store: PostgresStore, app: App) -> None:
    runs: list[int] = []

    @app.destination("shop")
    async def handle(attempt: Attempt) -> None: ...

    @app.duty("count", every_seconds=3600)
    async def count(given: Store) -> None:
        runs.append(1)

    async with processing(database, app) as one, processing(database, app) as two:
        for seen in (one, two):
            await seen.until("begin_duty.stop", duty="count")
            await seen.until("relay.started")
        workers = await store.rows("SELECT count(*) FROM redrive.relay", [])
        assert int(workers[0][0]) == 2
    assert runs == [1]
