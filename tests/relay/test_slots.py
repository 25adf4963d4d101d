"""Who gets a slot of the process while all are in use: they go round, however busy a destination is (G-09)."""

from __future__ import annotations

import asyncio

import pytest

from redrive.app import App, DestinationOptions
from redrive.message import Attempt, MessageId, NewMessage
from redrive.relay.dispatching import destination_queue
from redrive.relay.dispatching.runner import YIELD_EVERY
from redrive.store.runtime.postgres import PostgresStore
from tests.model_store.model import ModelStore
from tests.relay.harness import Running, Seen, enqueue, relaying

pytestmark = pytest.mark.req("G-09")


def claim_ahead(relay: Running, *names: str) -> None:
    """As if they had been quick so far: the first claim takes more than the slots can hold."""
    for name in names:
        relay.relay._queues[name].capacity.latency_seconds = 0.0001


async def test_a_slot_of_a_quick_handler_is_given_up_after_a_few_messages_and_not_after_each(
    store: PostgresStore, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both slots are busy's. One goes to rare when each has run its few; none is asked for before."""
    monkeypatch.setattr(destination_queue, "QUICK_SECONDS", 60.0)  # however slow the machine is
    finished: list[str] = []

    async def note(attempt: Attempt) -> None:
        finished.append(attempt.destination)

    app.destination("busy", concurrency=2)(note)
    app.destination("rare", concurrency=2)(note)
    await enqueue(store, 400, destination="busy")
    await enqueue(store, 4, destination="rare", level=0)
    async with relaying(store, app, concurrency=2) as relay:
        claim_ahead(relay, "busy")
        await relay.seen.until("message.delivered", count=404)
    assert finished.index("rare") == 2 * YIELD_EVERY


async def test_a_slot_of_a_slow_handler_is_given_up_after_one_message(
    store: PostgresStore, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(destination_queue, "QUICK_SECONDS", 0.0)
    finished: list[str] = []

    async def note(attempt: Attempt) -> None:
        finished.append(attempt.destination)

    app.destination("busy", concurrency=2)(note)
    app.destination("rare", concurrency=2)(note)
    await enqueue(store, 400, destination="busy")
    await enqueue(store, 4, destination="rare", level=0)
    async with relaying(store, app, concurrency=2) as relay:
        claim_ahead(relay, "busy")
        await relay.seen.until("message.delivered", count=404)
    assert finished.index("rare") <= 1 + YIELD_EVERY  # the other slot goes on until it lets others have the loop


@pytest.mark.parametrize("slots", [1, 2, 5, 6, 8])
async def test_each_destination_is_served_while_all_the_others_have_work(
    store: PostgresStore, app: App, slots: int
) -> None:
    """Six of them, with fewer slots than that, as many, and more."""
    finished: list[str] = []

    async def work(attempt: Attempt) -> None:
        await asyncio.sleep(0.002)
        finished.append(attempt.destination)

    names = [f"d{number}" for number in range(6)]
    for name in names:
        app.destination(name, concurrency=4)(work)
        await enqueue(store, 100, destination=name)
    async with relaying(store, app, concurrency=slots) as relay:
        claim_ahead(relay, *names)
        await relay.seen.until("message.delivered", count=100 * len(names))
    last = {name: index for index, name in enumerate(finished)}
    assert set(finished[: min(last.values())]) == set(names)


@pytest.mark.req("P-05", "G-13")
@pytest.mark.parametrize(
    "rules",
    [{"in_doubt": "hold"}, {"money": True}, {"money": True, "token_ttl_seconds": 3600}],
    ids=["hold", "money", "money with a token"],
)
@pytest.mark.parametrize(("slots", "most"), [(100, 10), (4, 4)])
async def test_what_a_crash_leaves_in_doubt_without_a_lookup_is_claimed_only_when_it_can_begin(
    app: App, slots: int, most: int, rules: DestinationOptions
) -> None:
    """Of a relay that dies, what it has claimed is in doubt, begun or not. slots: of the whole process."""
    may_end = asyncio.Event()
    begun: list[MessageId] = []

    options: DestinationOptions = {**rules, "concurrency": 10}

    @app.destination("bank", **options)
    async def pay(attempt: Attempt) -> None:
        begun.append(attempt.id)
        if len(begun) > 30:  # until then it is quick, so that the relay would claim far ahead
            await may_end.wait()

    store = ModelStore()
    for _ in range(230):
        store.enqueue(NewMessage("bank", {}))
    held: list[int] = []
    seen = Seen()
    async with relaying(store, app, seen=seen, concurrency=slots) as relay:

        def look(*_: object) -> None:
            held.append(sum(lease.worker == relay.worker for lease in store._leases.values()))

        seen.events.subscribe(look, "claim.stop")
        await seen.that(lambda: len(begun) == 30 + most, what="all slots in use")
        await seen.next("heartbeat.stop", count=2)
        assert len(await store.leases_of(relay.worker)) == most
        may_end.set()
        await seen.until("message.delivered", count=230)
    assert max(held) <= most
