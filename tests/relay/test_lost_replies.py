"""The reply of a claim, or of a settle that handed a lane over, is lost: what the relay never began it hands back.

Otherwise those claims would run out and come back in doubt, and money that nobody has sent would wait for a person.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest

from redrive.app import App
from redrive.message import Attempt, Fence, MessageId, NewMessage, WorkerId
from redrive.ports import Claimed, Outcome, Settled, TransientFailure
from redrive.store.runtime.postgres import PostgresStore
from tests.model_store.model import ModelStore
from tests.relay.harness import Seen, enqueue, relaying
from tests.support import messages as m
from tests.support.proxy import Proxy, proxied

Through = tuple[Proxy, PostgresStore, PostgresStore]
BY_VERB = "SELECT verb, count(*) FROM redrive.attempt GROUP BY verb ORDER BY verb"


@pytest.fixture
async def through(database: str) -> AsyncIterator[Through]:
    """The proxy, a store that goes through it, and one that does not."""
    async with AsyncExitStack() as stack:
        proxy, dsn = await stack.enter_async_context(proxied(database))
        lossy = await stack.enter_async_context(PostgresStore(dsn, connections=6))
        plain = await stack.enter_async_context(PostgresStore(database, connections=2))
        yield proxy, lossy, plain


@pytest.mark.req("P-05", "G-14")
async def test_money_of_a_claim_whose_reply_was_lost_is_handed_back_and_delivered_once(
    through: Through, app: App
) -> None:
    proxy, lossy, plain = through
    sent: Counter[MessageId] = Counter()

    @app.destination(m.DESTINATION, money=True, concurrency=300)
    async def pay(attempt: Attempt) -> None:
        sent[attempt.id] += 1

    ids = [id for level, count in enumerate((180, 90, 30)) for id in await enqueue(plain, count, level=level)]
    proxy.lose_reply_to(b"claim_1")
    seen = Seen()
    async with relaying(lossy, app, seen=seen, concurrency=300, lease_seconds=600.0):
        await seen.until("message.delivered", count=300)
    assert proxy.cuts == 1
    lost = sum(values["count"] for values in seen.of("relay.reply_lost"))
    assert lost == 300
    assert sent == Counter(ids)
    assert dict(await plain.rows(BY_VERB, [])) == {"settle": 300, "hand_back": lost}
    assert await plain.rows("SELECT count(*) FROM redrive.parked", []) == [(0,)]
    assert await m.conserved(plain)


@pytest.mark.req("G-14")
async def test_a_lane_that_was_handed_over_in_a_lost_reply_goes_on_without_doubt(through: Through, app: App) -> None:
    proxy, lossy, plain = through
    sent: list[MessageId] = []

    @app.destination(m.DESTINATION, in_doubt="hold")
    async def handle(attempt: Attempt) -> None:
        sent.append(attempt.id)

    ids = [await m.enqueue(plain, now=None, order_by="account:1") for _ in range(5)]
    proxy.lose_reply_to(b"settle_delivered_1")
    seen = Seen()
    async with relaying(lossy, app, seen=seen, lease_seconds=600.0):
        await seen.until("message.delivered", count=5)
    assert proxy.cuts == 1
    assert sent == ids
    assert seen.of("relay.reply_lost", count=1)
    assert await plain.rows("SELECT count(*) FROM redrive.attempt WHERE verb = 'reap'", []) == [(0,)]
    assert await m.conserved(plain)


class Losing(ModelStore):
    """Loses the reply of the next claim when told to, and refuses to settle one message for good."""

    loses_claim = False
    never_settled: MessageId | None = None

    async def claim(self, *arguments: Any, **options: Any) -> Claimed:
        claimed = await super().claim(*arguments, **options)
        if self.loses_claim:
            self.loses_claim = False
            raise TransientFailure("lost")
        return claimed

    async def settle(self, worker: WorkerId, outcomes: Sequence[Outcome], **options: Any) -> Settled:
        if any(outcome.attempt.id == self.never_settled for outcome in outcomes):
            self.loses_claim = True
            raise ValueError
        return await super().settle(worker, outcomes, **options)


@pytest.mark.req("G-14")
async def test_a_claim_that_was_begun_and_could_not_be_settled_is_not_handed_back(app: App) -> None:
    """It runs out and comes back in doubt; handed back it would be sent again as if nothing had happened."""

    @app.destination(m.DESTINATION, in_doubt="hold")
    async def handle(attempt: Attempt) -> None: ...

    store = Losing()
    store.never_settled = begun = store.enqueue(NewMessage(m.DESTINATION, {})).id
    seen = Seen()
    async with relaying(store, app, seen=seen, lease_seconds=600.0) as relay:
        await seen.that(lambda: store.loses_claim, what="the settle that fails for good")
        others = [store.enqueue(NewMessage(m.DESTINATION, {})).id for _ in range(3)]
        await seen.until("message.delivered", count=3)
        assert store.loses_claim is False
        assert seen.of("relay.reply_lost")
        assert await store.leases_of(relay.worker) == [Fence(begun, 1)]
    assert [store.state_of(id) for id in [begun, *others]] == ["leased", *["delivered"] * 3]


@pytest.mark.req("G-14")
async def test_what_the_relay_has_in_hand_is_not_handed_back_after_a_lost_reply(app: App) -> None:
    """It runs while the relay asks which claims it holds."""
    may_end = asyncio.Event()
    sent: list[MessageId] = []

    @app.destination(m.DESTINATION, in_doubt="hold")
    async def handle(attempt: Attempt) -> None:
        sent.append(attempt.id)
        await may_end.wait()

    store = Losing()
    first = store.enqueue(NewMessage(m.DESTINATION, {})).id
    seen = Seen()
    async with relaying(store, app, seen=seen, lease_seconds=600.0):
        await seen.that(lambda: sent == [first], what="the first in hand")
        store.loses_claim = True
        second = store.enqueue(NewMessage(m.DESTINATION, {})).id
        await seen.until("relay.reply_lost", count=1)
        may_end.set()
        await seen.until("message.delivered", count=2)
    assert sent == [first, second]
    assert [values["count"] for values in seen.of("relay.reply_lost")] == [1]
