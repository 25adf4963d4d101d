"""People and replays at the same dead letters at once: nobody deadlocks, and nothing goes out twice (G-16)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest

from redrive.errors import ActRefused
from redrive.message import MessageId
from redrive.operate.desk import replays
from redrive.operate.desk.replays import NewReplay
from redrive.ports import ClaimRequest
from redrive.store.runtime import desk
from redrive.store.runtime.postgres import PostgresStore
from tests.desk.failing import ACT, dead
from tests.support import messages as m

pytestmark = pytest.mark.req("G-16")

MESSAGES = 60


async def test_people_and_a_replay_at_the_same_letters(store: PostgresStore) -> None:
    """Requeue, discard, triage and skip by several people, a replay, and a relay that fails some of it again."""
    random = Random(7)
    now = await store.now()
    ids: list[MessageId] = []
    for number in range(MESSAGES):
        lane = f"customer:{number % 6}" if number % 2 else None
        ids += await dead(store, order_by=lane, park={"halts": False}, now=now)
    wanted = NewReplay(
        name="x", filter={"error_class": "HTTP_422"}, override=True, out_of_order=True, rate_per_second=10_000, **ACT
    )
    await replays.create(store, wanted)
    over = asyncio.Event()

    async def person(seed: int) -> None:
        chance = Random(seed)
        acts: list[Callable[[MessageId], Awaitable[Any]]] = [
            lambda id_: store.requeue(id_, **ACT, out_of_order=True),
            lambda id_: store.discard(id_, **ACT),
            lambda _: desk.triage(store, chance.sample(ids, 5), "data", **ACT),
        ]
        for _ in range(25):
            with contextlib.suppress(ActRefused):
                await chance.choice(acts)(chance.choice(ids))

    async def relay() -> None:
        while not over.is_set():
            taken = await store.claim(m.WORKER, [ClaimRequest(m.DESTINATION, 1, 20)], lease_seconds=60)
            outcomes = [
                m.outcome(a, m.park(error_class="HTTP_422") if random.random() < 0.2 else m.close(), text="again")
                for a in taken.attempts
            ]
            if outcomes:
                await store.settle(m.WORKER, outcomes)
            await asyncio.sleep(0)

    async def steps() -> None:
        for _ in range(40):
            await store.run_replay(every_seconds=0.0, limit=10)

    working = asyncio.create_task(relay())
    await asyncio.gather(person(1), person(2), steps())
    over.set()
    await working
    assert await m.conserved(store)
    twice = "SELECT count(*) FROM redrive.attempt WHERE verb = 'replay' GROUP BY message_id HAVING count(*) > 1"
    assert await store.rows(twice, []) == []
    delivered = (
        "SELECT count(*) FROM redrive.attempt WHERE closed = 'delivered' GROUP BY message_id HAVING count(*) > 1"
    )
    assert await store.rows(delivered, []) == []
