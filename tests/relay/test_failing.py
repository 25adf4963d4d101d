"""A relay lives or it ends, loudly: nothing inside it may die and leave one that only seems to work."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from redrive.answers import Delivered, to_json
from redrive.app import App
from redrive.message import Attempt, Fence, NewMessage, ParkReason, WorkerId
from redrive.policy import Settlement
from redrive.ports import Outcome, Settled
from redrive.relay.process import RelayProcess, run_relay
from redrive.settings import RelayLimits
from redrive.store.runtime.postgres import PostgresStore
from tests.model_store.model import ModelStore
from tests.relay.harness import QUICK, SECONDS_MAX, Running, Seen, enqueue, relaying
from tests.support import messages as m


class Broken(RuntimeError):
    """What nobody expects of a store."""


def declare(app: App, **options: Any) -> None:
    @app.destination("shop", **options)
    async def handle(attempt: Attempt) -> None: ...


async def died(store: ModelStore, app: App, **limits: Any) -> BaseException | None:
    """What the relay ended with, by itself."""
    running = Running(store, app, Seen(), **{"stop_seconds": 0, **limits})
    done, _ = await asyncio.wait([running.task], timeout=SECONDS_MAX)
    assert done, "it goes on as if nothing had happened"
    assert running.seen.of("relay.stopped") == []
    return running.task.exception()


@pytest.mark.parametrize(
    "verb", ["claim", "settle", "renew", "heartbeat", "hand_back", "pause", "register", "is_leased"]
)
async def test_a_verb_that_fails_for_good_ends_the_relay(app: App, verb: str) -> None:
    """Not for its content: the verb is gone, say. Every part that calls one is tried."""

    async def broken(*arguments: object, **options: object) -> None:
        raise Broken(verb)

    store = ModelStore()
    for _ in range(30):
        store.enqueue(NewMessage("shop", {}))
    setattr(store, verb, broken)
    begun: list[object] = []

    @app.destination("shop", concurrency=30 if verb == "settle" else 1)
    async def handle(attempt: Attempt) -> None:
        begun.append(attempt.id)
        match verb:
            case "renew" | "heartbeat":
                await asyncio.sleep(1)
            case "pause":
                raise KeyError
            case "is_leased":
                attempt.completion.attempted = True

    limits: dict[str, Any] = {"lease_seconds": 1.0} if verb in ("renew", "hand_back") else {}
    if verb == "hand_back":

        async def lost(worker: WorkerId, fences: Sequence[Fence], **options: object) -> Sequence[Fence]:
            await asyncio.Event().wait()
            return fences

        store.renew = lost  # type: ignore[method-assign]  # for this one test
        app.destinations.clear()

        @app.destination("shop", concurrency=1)
        async def slow(attempt: Attempt) -> None:
            await asyncio.sleep(0.9)

        limits["horizon_seconds"] = 10
    failure = await died(store, app, **limits)
    assert isinstance(failure, Broken)


async def test_a_subscriber_that_fails_in_a_slot_ends_the_relay_and_the_claim_with_it(app: App) -> None:
    declare(app)
    store = ModelStore()
    store.enqueue(NewMessage("shop", {}))
    running = Running(store, app, Seen(), stop_seconds=0)

    def fail(name: str, values: Mapping[str, Any]) -> None:
        raise Broken

    running.seen.events.subscribe(fail, "message.delivered")
    await asyncio.wait([running.task], timeout=SECONDS_MAX)
    assert isinstance(running.task.exception(), Broken)


async def test_a_subscriber_that_fails_during_a_send_makes_it_unknown(app: App) -> None:
    declare(app)
    store = ModelStore()
    id = store.enqueue(NewMessage("shop", {})).id

    def fail(name: str, values: Mapping[str, Any]) -> None:
        raise Broken

    async with relaying(store, app) as relay:
        relay.seen.events.subscribe(fail, "send.start")
        await relay.seen.until("message.retried", id=id, code="INTERRUPTED", in_doubt=True)


@pytest.mark.req("G-27")
async def test_a_kept_answer_survives_a_subscriber_that_fails(app: App) -> None:
    """The claim is handed back with the answer, and not retried without it: that would send again."""
    handled: list[object] = []

    async def record(conn: Any, attempt: Attempt, settlement: Settlement) -> None: ...

    @app.destination("shop", record=record)
    async def handle(attempt: Attempt) -> None:
        handled.append(attempt.id)

    store = ModelStore()
    id = store.enqueue(NewMessage("shop", {})).id
    attempt = (await store.claim(m.OTHER_WORKER, m.PLAIN_ROOMS, lease_seconds=60)).attempts[0]
    kept = to_json(Delivered("r-1"))
    await store.settle(m.OTHER_WORKER, [m.outcome(attempt, m.park(ParkReason.UNRECORDED), kept_answer=kept)])
    await store.repair(id, actor="ada", reason="again")
    failing = [True]

    def fail(name: str, values: Mapping[str, Any]) -> None:
        if failing:
            failing.pop()
            raise Broken

    async with relaying(store, app) as relay:
        relay.seen.events.subscribe(fail, "dispatch.start")
        await relay.seen.until("hand_back.stop")
        await relay.seen.until("message.delivered", id=id)
    assert handled == []


async def test_work_beside_the_path_that_dies_stops_the_whole_process(
    database: str, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without suspects or duties it would only seem well: it stops gracefully, and then says why."""
    declare(app)
    seen = Seen()

    async def broken(self: PostgresStore, *arguments: object, **options: object) -> bool:
        raise Broken

    for verb in ("suspect_destinations", "begin_duty"):
        monkeypatch.setattr(PostgresStore, verb, broken)
        process = RelayProcess(app=app, dsn=database, limits=RelayLimits(**QUICK), name="test")
        with pytest.raises(Broken):
            async with asyncio.timeout(SECONDS_MAX):
                await run_relay(process, events=seen.events, signals=False)
        monkeypatch.undo()
    assert len(seen.of("relay.stopped")) == len(seen.of("relay.started"))


async def test_an_outcome_that_the_database_will_never_take_does_not_end_the_relay(
    store: PostgresStore, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever got past the checks: its claim runs out by itself, and its neighbours are delivered."""
    good, bad = await enqueue(store, 5), await enqueue(store, 1, body=b'{"bad":1}')
    real = PostgresStore.settle

    async def refuse(self: PostgresStore, worker: WorkerId, outcomes: Sequence[Outcome], **options: Any) -> Settled:
        if any(outcome.attempt.id in bad for outcome in outcomes):
            raise ValueError("value out of range")
        return await real(self, worker, outcomes, **options)

    monkeypatch.setattr(PostgresStore, "settle", refuse)
    declare(app)
    async with relaying(store, app) as relay:
        await relay.seen.until("message.delivered", count=5)
        await relay.seen.that(lambda: not relay.relay._leases.claims, what="all claims to be let go")
        assert {told["id"] for told in relay.seen.of("message.delivered")} == set(good)
