"""A cancel of a message that a relay has claimed and not begun reaches it before the first byte (G-24).

What has waited in hand for longer than `FRESH_SECONDS` is asked about before it is sent, and all that waits with it in
the same statement. The same holds for a message that expires in hand, and for evidence that it was delivered.
"""

from __future__ import annotations

import asyncio
from typing import LiteralString

import pytest

from redrive.answers import Absent, Delivered
from redrive.app import App, Destination
from redrive.message import Attempt, CancelAnswer, MessageId
from redrive.policy import Rules
from redrive.relay.claiming import claim_checks
from redrive.store.runtime.postgres import PostgresStore
from tests.relay.harness import SECONDS_MAX, Gate, Running, enqueue, relaying, states

pytestmark = pytest.mark.req("G-24")

ADD_EVIDENCE = "SELECT redrive.add_evidence(%s, 'statement', 'entry 1', 'ref', clock_timestamp())"


@pytest.fixture(autouse=True)
def soon_old(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is known of a claim is too old after this time, so that the tests need not wait for long."""
    monkeypatch.setattr(claim_checks, "FRESH_SECONDS", 0.02)


async def all_in_hand(relay: Running, store: PostgresStore, gate: Gate, count: int) -> None:
    """The first has begun; the others are claimed, and have waited behind it for long enough to be asked about.

    No check is under way: its answer, of before the test's next statement, would be believed for `FRESH_SECONDS`.
    """
    queue, checks = relay.relay._queues["shop"], relay.relay._checks
    await relay.seen.that(lambda: gate.inside == 1 and len(queue.waiting) == count - 1, what="all in hand, one begun")
    await relay.seen.that(
        lambda: not checks.is_under_way and all(map(checks.is_due, queue.waiting)), what="all have waited for long"
    )
    assert len(await store.leases_of(relay.worker)) == count


async def until_states(relay: Running, store: PostgresStore, wanted: dict[str, int]) -> None:
    try:
        async with asyncio.timeout(SECONDS_MAX):
            while await states(store) != wanted:
                await relay.seen.next("relay.looked")
    except TimeoutError:
        pytest.fail(f"waited for {wanted}, found {await states(store)}; last: {relay.seen.all[-40:]}")


def claim_ahead(relay: Running) -> None:
    """As if it had been quick so far: the first claim takes more than the slot can hold."""
    relay.relay._queues["shop"].capacity.latency_seconds = 0.0001


def gated(app: App, gate: Gate) -> None:
    @app.destination("shop", concurrency=1)
    async def deliver(attempt: Attempt) -> None:
        await gate(attempt.id)


async def test_a_message_cancelled_while_it_waits_in_hand_is_never_sent(store: PostgresStore, app: App) -> None:
    gate = Gate()
    gated(app, gate)
    ids = await enqueue(store, 5)
    async with relaying(store, app) as relay:
        claim_ahead(relay)
        await all_in_hand(relay, store, gate, 5)
        cancelled = [id for id in ids if id not in gate.entered][:2]
        assert [await store.cancel(id) for id in cancelled] == [CancelAnswer.IN_FLIGHT] * 2
        gate.open()
        await relay.seen.until("message.delivered", count=3)
        await relay.seen.that(lambda: not relay.relay._leases.claims, what="nothing in hand")
    assert sorted(gate.entered) == sorted(set(ids) - set(cancelled))
    for id in cancelled:
        assert [(row.verb, row.closed, row.spent) for row in await store.history(id)] == [("hand_back", "cancelled", 0)]


async def test_the_lane_of_a_message_cancelled_in_hand_goes_on(store: PostgresStore, app: App) -> None:
    gate = Gate()
    gated(app, gate)
    await enqueue(store)
    sql = "SELECT (redrive.enqueue_1('shop', '{}', p_order_by => 'k')).id FROM generate_series(1, 2)"
    first, second = [MessageId(row[0]) for row in await store.rows(sql, [])]
    async with relaying(store, app) as relay:
        claim_ahead(relay)
        await all_in_hand(relay, store, gate, 2)
        assert await store.cancel(first) is CancelAnswer.IN_FLIGHT
        gate.open()
        await relay.seen.until("message.delivered", id=second)
    assert first not in gate.entered


EXPIRES = "UPDATE redrive.lease SET expires_at = clock_timestamp() WHERE id = %s RETURNING 1"
LOSES = "UPDATE redrive.lease SET worker = gen_random_uuid() WHERE id = %s RETURNING 1"


@pytest.mark.parametrize(
    ("change", "ends_as"), [(EXPIRES, "expired"), (ADD_EVIDENCE, "parked·held"), (LOSES, "leased")]
)
async def test_what_expires_is_proven_or_lost_in_hand_is_not_sent_either(
    store: PostgresStore, app: App, change: LiteralString, ends_as: str
) -> None:
    gate = Gate()
    gated(app, gate)
    ids = await enqueue(store, 2)
    async with relaying(store, app) as relay:
        claim_ahead(relay)
        await all_in_hand(relay, store, gate, 2)
        (other,) = set(ids) - set(gate.entered)
        await store.rows(change, [other])
        gate.open()
        await until_states(relay, store, {"delivered": 1, ends_as: 1})
    assert other not in gate.entered


class Asked:
    """A transport whose validation and lookup wait at a gate of their own."""

    def __init__(self, before: Gate) -> None:
        self.before = before
        self.sent: list[MessageId] = []

    async def validate(self, attempt: Attempt) -> None:
        if not attempt.in_doubt:
            await self.before(attempt.id)

    async def lookup(self, attempt: Attempt) -> Absent:
        await self.before(attempt.id)
        return Absent()

    async def send(self, attempt: Attempt) -> Delivered:
        self.sent.append(attempt.id)
        return Delivered()


@pytest.mark.parametrize("money", [False, True])
@pytest.mark.parametrize("in_doubt", [False, True])
async def test_a_cancel_during_a_lookup_or_a_validation_is_known_before_the_send(
    store: PostgresStore, app: App, *, in_doubt: bool, money: bool
) -> None:
    before = Gate()
    transport = Asked(before)
    rules = Rules(in_doubt="lookup", money=money, lookups_are_immediate=True, absent_is_final=True)
    app.add(Destination(name="shop", transport=transport, rules=rules))
    (id,) = await enqueue(store)
    if in_doubt:
        await store.rows("UPDATE redrive.pending SET in_doubt_since = now() - interval '1 hour' RETURNING 1", [])
    async with relaying(store, app) as relay:
        await relay.seen.that(lambda: before.inside == 1, what="it is asked about")
        (claim,) = relay.relay._leases.claims.values()
        await relay.seen.that(lambda: relay.relay._checks.is_due(claim), what="that takes long")
        assert await store.cancel(id) is (CancelAnswer.IN_DOUBT if in_doubt else CancelAnswer.IN_FLIGHT)
        before.open()
        await relay.seen.that(lambda: relay.relay._leases.claims.get(id) is not claim, what="that claim is over")
        assert transport.sent == []
        await until_states(relay, store, {"cancelled": 1})
    assert transport.sent == []


async def test_all_that_waits_is_asked_about_in_one_statement_and_a_relay_that_keeps_up_never_asks(
    store: PostgresStore, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim_checks, "FRESH_SECONDS", 60.0)
    gate = Gate()
    gated(app, gate)
    await enqueue(store, 50)
    async with relaying(store, app) as relay:
        claim_ahead(relay)
        queue = relay.relay._queues["shop"]
        await relay.seen.that(lambda: gate.inside == 1 and len(queue.waiting) == 49, what="all in hand, one begun")
        for claim in queue.waiting:
            claim.known_at -= 60.0
        gate.open()
        await relay.seen.until("message.delivered", count=50)
        assert [values["count"] for values in relay.seen.of("check_claims.start")] == [49]
        await enqueue(store, 200)
        await relay.seen.until("message.delivered", count=250)
    assert len(relay.seen.of("check_claims.start")) == 1


async def test_what_a_check_finds_out_while_a_message_is_validated_counts_too(
    store: PostgresStore, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was among those that wait when the check began, and has got its slot since."""
    monkeypatch.setattr(claim_checks, "FRESH_SECONDS", 60.0)
    before = Gate()
    transport = Asked(before)
    app.add(Destination(name="shop", transport=transport))
    (id,) = await enqueue(store)
    async with relaying(store, app) as relay:
        await relay.seen.that(lambda: before.inside == 1, what="it is validated")
        (claim,) = relay.relay._leases.claims.values()
        assert await store.cancel(id) is CancelAnswer.IN_FLIGHT
        await relay.relay._checks._check([claim])
        before.open()
        await until_states(relay, store, {"cancelled": 1})
    assert transport.sent == []
