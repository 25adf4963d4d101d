"""When a relay looks for work: at its own pace where there was nothing, at once where there was something (G-08)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from redrive.app import App
from redrive.message import Attempt
from redrive.policy import Settlement
from redrive.relay.wakeup.poll_schedule import STEPS_SECONDS
from redrive.store.runtime.postgres import PostgresStore
from tests.relay.harness import Gate, enqueue, relaying, states

pytestmark = pytest.mark.req("G-08")

POLL_SECONDS = 60.0


async def test_room_that_becomes_free_is_no_reason_to_look_again(store: PostgresStore, app: App) -> None:
    """Nothing waits anywhere, and both destinations know it; then forty records end, one after the other."""
    go_on = asyncio.Event()

    async def wait(conn: Any, attempt: Attempt, settlement: Settlement) -> None:
        await go_on.wait()

    @app.destination("booked", concurrency=50, record=wait)
    async def handle(attempt: Attempt) -> None: ...

    @app.destination("empty", concurrency=50)
    async def never(attempt: Attempt) -> None:
        raise AssertionError

    await enqueue(store, 40, destination="booked", level=0)
    async with relaying(store, app, lease_seconds=60, poll_seconds=POLL_SECONDS) as relay:
        queues = relay.relay._queues.values()
        soon = asyncio.get_running_loop().time() + POLL_SECONDS / 2
        await relay.seen.that(lambda: all(queue.poll.look_at > soon for queue in queues), what="all to be quiet")
        looks = len(relay.seen.of("claim.stop"))
        go_on.set()
        await relay.seen.until("message.delivered", count=40)
        await relay.seen.next("heartbeat.stop", count=2)
        assert len(relay.seen.of("claim.stop")) == looks
        assert sum(told["count"] for told in relay.seen.of("claim.stop")) == 40


@pytest.mark.req("G-24")
async def test_a_claim_that_found_only_expired_messages_found_something(store: PostgresStore, app: App) -> None:
    """More of them than fit into as many claims as there are short steps: what waits behind them must not wait long."""

    @app.destination("shop", concurrency=10)  # so that one claim looks at three of each level or fewer
    async def handle(attempt: Attempt) -> None: ...

    expired = 3 * (len(STEPS_SECONDS) + 1)
    await store.rows(
        "SELECT redrive.enqueue_1('shop', '{}', p_now => now() - interval '1 hour',"
        " p_expires_at => now() - interval '1 minute') FROM generate_series(1, %s)",
        [expired],
    )
    await enqueue(store)
    async with relaying(store, app, poll_seconds=POLL_SECONDS) as relay:
        await relay.seen.until("message.delivered")
        names = [name for name, _ in relay.seen.all]
        assert "relay.idle" not in names[: names.index("dispatch.start")]
    assert await states(store) == {"delivered": 1, "expired": expired}


async def test_slots_that_nothing_waits_for_any_more_are_filled_before_the_poll(store: PostgresStore, app: App) -> None:
    """A claim is split over the levels, so it takes several until all slots are taken; nothing ends meanwhile."""
    gate = Gate()

    @app.destination("shop", concurrency=50)
    async def handle(attempt: Attempt) -> None:
        await gate(attempt.id)

    await enqueue(store, 50)
    async with relaying(store, app, lease_seconds=100, poll_seconds=POLL_SECONDS) as relay:
        await relay.seen.that(lambda: gate.inside == 50, what="all slots to be taken")
        gate.open()
        await relay.seen.until("message.delivered", count=50)
