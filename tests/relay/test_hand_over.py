"""A relay that has delivered one message of an ordering key is handed the next, but keeps no key for itself (G-07)."""

from __future__ import annotations

import pytest

from redrive.app import App
from redrive.message import Attempt
from redrive.relay.settling.hand_over import STREAK_MAX
from redrive.store.runtime.postgres import PostgresStore
from tests.relay.harness import Seen, relaying

pytestmark = pytest.mark.req("G-07")

ENQUEUE = "SELECT (redrive.enqueue_1('shop', '{}', p_order_by => %s)).id FROM generate_series(1, %s)"


def _handed_over(seen: Seen) -> int:
    return sum(values["handed_over"] for values in seen.of("settle.stop"))


def _claimed(seen: Seen) -> int:
    return sum(values["count"] for values in seen.of("claim.stop"))


async def test_a_key_is_handed_on_so_often_and_then_takes_its_turn(store: PostgresStore, app: App) -> None:
    sent: list[int | None] = []

    @app.destination("shop")
    async def handle(attempt: Attempt) -> None:
        sent.append(attempt.sequence)

    turns = 3
    messages = turns * (1 + STREAK_MAX)
    await store.rows(ENQUEUE, ["customer:1", messages])
    async with relaying(store, app) as relay:
        await relay.seen.until("message.delivered", count=messages)
    assert sent == list(range(1, messages + 1))
    assert _claimed(relay.seen) == turns
    assert _handed_over(relay.seen) == turns * STREAK_MAX
