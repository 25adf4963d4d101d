"""A destination that is down, or asks for a rest, is left alone: nobody pays for it, and nobody else waits (G-25)."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import psycopg
import pytest

import redrive
from redrive.answers import Answer, Retryable, Unknown
from redrive.app import App
from redrive.message import Attempt
from redrive.policy import Backoff, Breaker, Policy
from redrive.ports import Opened
from redrive.store.runtime.postgres import PostgresStore
from tests.relay.harness import Gate, Running, enqueue, relaying, settled, states

pytestmark = pytest.mark.req("G-25")

SOON = Policy(backoff=Backoff(initial_seconds=0, max_seconds=0, jitter="none"))
DOWN = Retryable("CONNECTION_REFUSED", destination_down=True)
LONG = Breaker(failures=3, cool_off_seconds=100)
SHORT = Breaker(failures=3, cool_off_seconds=0.1)
BY: dict[str, Any] = {"actor": "ada", "reason": "maintenance"}


class Switch:
    """A destination that can be switched off: then it gives this answer instead."""

    def __init__(self, app: App, name: str = "shop", *, off: Answer | None = DOWN, **options: Any) -> None:
        self.off = off
        self.tried = 0
        app.destination(name, **{"policy": SOON, **options})(self.send)

    async def send(self, attempt: Attempt) -> None:
        self.tried += 1
        if self.off is not None:
            raise self.off


async def spent(store: PostgresStore, destination: str = "shop") -> int:
    """The most that any message, wherever it is, has used of its budget."""
    rows = await store.rows(
        "SELECT coalesce(max(spent), 0) FROM (SELECT spent FROM redrive.pending WHERE destination = %(name)s"
        " UNION ALL SELECT spent FROM redrive.parked WHERE destination = %(name)s"
        " UNION ALL SELECT spent FROM redrive.attempt WHERE destination = %(name)s AND answer IS DISTINCT FROM"
        " 'delivered') s",
        {"name": destination},
    )
    return int(rows[0][0])


async def breaker(store: PostgresStore, destination: str = "shop") -> tuple[str, int]:
    """Its state in the table, and how often it has tripped."""
    rows = await store.rows("SELECT breaker, breaker_trips FROM redrive.destination WHERE name = %s", [destination])
    return str(rows[0][0]), int(rows[0][1])


# the breaker opens


async def test_a_destination_that_is_down_is_left_alone_and_nobody_pays(store: PostgresStore, app: App) -> None:
    shop = Switch(app, breaker=LONG, concurrency=1)
    await enqueue(store, 60)
    async with relaying(store, app) as relay:
        await relay.seen.until("breaker.opened", destination="shop", code="CONNECTION_REFUSED")
        await relay.seen.next("heartbeat.stop", count=3)
        assert shop.tried == 3
        assert relay.relay._leases.claims == {}, "what was in hand is handed back"
    assert await states(store) == {"pending": 60}
    assert await spent(store) == 0
    assert await breaker(store) == ("open", 1)


async def test_what_was_claimed_beside_the_opening_is_handed_back_too(
    store: PostgresStore, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim does not wait for an opening that is being written, and its date may be later than the opening's."""
    opens = store.open_breaker

    async def dated_before_the_claims(destination: str, **evidence: Any) -> Opened:
        monkeypatch.setattr(store, "open_breaker", opens)
        opened = await opens(destination, **evidence)
        sql = "UPDATE redrive.destination SET breaker_opened_at = breaker_opened_at - interval '1 h' RETURNING"
        ((at,),) = await store.rows(f"{sql} breaker_opened_at", [])
        return Opened(opened.opened, at, opened.open_seconds)

    monkeypatch.setattr(store, "open_breaker", dated_before_the_claims)
    shop = Switch(app, breaker=LONG, concurrency=1)
    await enqueue(store, 60)
    async with relaying(store, app) as relay:
        relay.relay._queues["shop"].capacity.latency_seconds = 0.0001  # so that the first claim takes many
        await relay.seen.until("open_breaker.stop", count=2)
        await relay.seen.that(lambda: not relay.relay._leases.claims, what="nothing in hand")
        assert shop.tried == 6
    assert await breaker(store) == ("open", 1)


async def test_without_a_breaker_it_is_tried_until_the_budget_is_spent(store: PostgresStore, app: App) -> None:
    shop = Switch(app, policy=Policy(attempts=4, backoff=SOON.backoff))
    await enqueue(store, 3)
    async with relaying(store, app) as relay:
        await relay.seen.until("message.parked", count=3)
    assert shop.tried == 12
    assert await states(store) == {"parked·dead": 3}


async def test_a_hanging_destination_opens_it_too_but_an_attempt_in_doubt_is_paid_for(
    store: PostgresStore, app: App
) -> None:
    shop = Switch(app, breaker=LONG, off=Unknown("READ_TIMEOUT"), concurrency=1)
    await enqueue(store, 20)
    async with relaying(store, app) as relay:
        await relay.seen.until("breaker.opened", code="READ_TIMEOUT")
        await relay.seen.next("heartbeat.stop", count=2)
    assert shop.tried == 3
    rows = await store.rows("SELECT sum(spent) FROM redrive.pending", [])
    assert rows[0][0] == 3


async def test_an_answer_that_was_received_opens_nothing(store: PostgresStore, app: App) -> None:
    Switch(app, breaker=LONG, off=Retryable("HTTP_503"), policy=Policy(attempts=5, backoff=SOON.backoff))
    await enqueue(store, 10)
    async with relaying(store, app) as relay:
        await relay.seen.until("message.parked", count=10)
        assert relay.seen.of("breaker.opened") == []


async def test_another_relay_hears_of_it_and_hands_back_what_it_has_in_hand(store: PostgresStore, app: App) -> None:
    gate = Gate()

    @app.destination("shop", concurrency=1, breaker=LONG)
    async def handle(attempt: Attempt) -> None:
        await gate(attempt.id)

    await enqueue(store, 8)
    async with relaying(store, app, horizon_seconds=10) as relay:
        relay.relay._queues["shop"].capacity.latency_seconds = 1.0
        await relay.seen.that(lambda: len(relay.relay._leases.claims) == 8, what="all in hand")
        await opened(store, seconds=100)
        await relay.seen.until("hand_back.stop", count=1)
        await relay.seen.that(lambda: len(relay.relay._leases.claims) == 1, what="only the one that runs")
        gate.open()
        await relay.seen.until("message.delivered", count=1)
    assert await states(store) == {"delivered": 1, "pending": 7}


# probe and ramp


async def test_when_it_is_back_one_probe_goes_then_a_ramp_and_then_everything(
    database: str, store: PostgresStore, app: App
) -> None:
    gate = Gate()

    @app.destination("shop", breaker=SHORT, concurrency=50)
    async def handle(attempt: Attempt) -> None:
        if not attempt.probe:
            await gate(attempt.id)

    await enqueue(store, 200)
    await opened(store)
    async with relaying(store, app) as relay:
        await relay.seen.until("breaker.recovered", destination="shop")
        looking = asyncio.create_task(ramp(database))
        await relay.seen.that(lambda: gate.inside == 4, what="the ramp to reach four")
        looking.cancel()
        gate.open()
        await relay.seen.until("message.delivered", count=200)
    assert await states(store) == {"delivered": 200}
    looks = await looking
    assert {count for _, count in looks} >= {1, 2}
    assert [(seconds, count) for seconds, count in looks if count > 2 ** int(seconds)] == []


async def ramp(dsn: str) -> list[tuple[float, int]]:
    """Whoever looks from outside, until cancelled: seconds since the ramp began, and how many are in flight then."""
    looks: list[tuple[float, int]] = []
    query = (
        "SELECT extract(epoch FROM clock_timestamp() - d.breaker_changed_at)::float8,"
        " (SELECT count(*) FROM redrive.lease) FROM redrive.destination d WHERE d.breaker = 'ramping'"
    )
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as conn:
        try:
            while True:
                looks += await (await conn.execute(query)).fetchall()
        except asyncio.CancelledError:
            return looks


async def opened(store: PostgresStore, *, seconds: float = 0.05) -> None:
    """As if a relay had found it down."""
    now = await store.now()
    answer = await store.open_breaker(
        "shop", claimed_at=now, code="CONNECTION_REFUSED", cool_off_seconds=seconds, cool_off_max_seconds=100
    )
    assert answer.opened


async def test_while_it_stays_down_single_probes_go_less_and_less_often(store: PostgresStore, app: App) -> None:
    """Three relays, and every send of any of them is a probe."""
    shop = Switch(app, breaker=SHORT)
    await enqueue(store, 50)
    await opened(store)
    async with AsyncExitStack() as stack:
        relays = [await stack.enter_async_context(relaying(store, app)) for _ in range(3)]
        await relays[0].seen.that(lambda: trips(relays) >= 4, what="four failed probes")
        assert trips(relays) == 4
        assert shop.tried == 4
    seconds = sorted(event["seconds"] for relay in relays for event in relay.seen.of("breaker.opened"))
    assert seconds == pytest.approx([0.2, 0.4, 0.8, 1.6])
    assert await spent(store) == 0


def trips(relays: list[Running]) -> int:
    return sum(len(relay.seen.of("breaker.opened")) for relay in relays)


async def test_the_probe_of_a_relay_that_stops_is_handed_on(store: PostgresStore, app: App) -> None:
    """It was begun and cut off: that says nothing about the destination, so another one goes."""
    gate, hanging = Gate(), [True]

    @app.destination("shop", breaker=SHORT, in_doubt="resend", policy=SOON)
    async def handle(attempt: Attempt) -> None:
        if hanging[0]:
            await gate(attempt.id)

    await enqueue(store, 5)
    await opened(store)
    async with relaying(store, app, stop_seconds=0) as relay:
        await relay.seen.until("send.start", count=1)
        await relay.seen.next("heartbeat.stop", count=2)
        assert gate.inside == 1
    assert await breaker(store) == ("half_open", 1)
    hanging[0] = False
    async with relaying(store, app) as relay:
        await relay.seen.until("breaker.recovered")
        await relay.seen.until("message.delivered", count=5)


async def test_a_probe_that_completes_by_itself_is_a_probe(database: str, store: PostgresStore, app: App) -> None:
    @app.destination("shop", breaker=SHORT)
    async def handle(attempt: Attempt) -> None:
        async with await psycopg.AsyncConnection.connect(database) as conn:
            await redrive.acomplete(conn, attempt)

    await enqueue(store, 3)
    await opened(store)
    async with relaying(store, app) as relay:
        await relay.seen.until("breaker.recovered")
        await relay.seen.that(lambda: len(relay.seen.of("is_leased.stop")) == 3, what="all three")
    assert await states(store) == {"delivered": 3}


# Retry-After


async def test_a_rest_that_is_asked_for_holds_for_every_message_and_for_no_other_destination(
    store: PostgresStore, app: App
) -> None:
    shop = Switch(app, off=Retryable("HTTP_429", retry_after=100), concurrency=1)
    Switch(app, "other", off=None)
    await enqueue(store, 40)
    async with relaying(store, app) as relay:
        await relay.seen.until("destination.paused", destination="shop", reason="retry_after")
        await enqueue(store, 40, destination="other")
        await relay.seen.until("message.delivered", count=40, destination="other")
        await relay.seen.next("heartbeat.stop", count=2)
        assert shop.tried == 1
        assert relay.relay._leases.claims == {}
    assert await states(store) == {"pending": 40, "delivered": 40}
    rows = await store.rows("SELECT sum(spent) FROM redrive.pending", [])
    assert rows[0][0] == 1, "an answer that was received is paid for, by that one message"


async def test_the_relay_goes_on_by_itself_when_the_rest_is_over(store: PostgresStore, app: App) -> None:
    """Without a heartbeat that tells it so."""
    shop = Switch(app, off=Retryable("HTTP_429", retry_after=0.2), concurrency=1)
    await enqueue(store, 10)
    async with relaying(store, app, heartbeat_seconds=9, lease_seconds=30) as relay:
        await relay.seen.until("destination.paused")
        shop.off = None
        await relay.seen.until("destination.resumed", destination="shop")
        await relay.seen.until("message.delivered", count=10)
        assert relay.seen.of("heartbeat.stop") == []


async def test_several_that_are_told_to_wait_at_once_wait_for_the_longest(store: PostgresStore, app: App) -> None:
    """Ten are in flight when the first is refused; each of them is answered for itself."""
    gate, asked = Gate(), iter(range(10, 20))

    @app.destination("shop", concurrency=10, policy=SOON)
    async def handle(attempt: Attempt) -> None:
        await gate(attempt.id)
        raise Retryable("HTTP_429", retry_after=next(asked))

    await enqueue(store, 30)
    async with relaying(store, app) as relay:
        await relay.seen.that(lambda: gate.inside == 10, what="ten to run")
        ((before,),) = await store.rows("SELECT clock_timestamp()", [])
        gate.open()
        await relay.seen.that(lambda: settled(relay.seen) == 10, what="ten answers")
        ((after,),) = await store.rows("SELECT clock_timestamp()", [])
        await relay.seen.next("heartbeat.stop", count=2)
        ((until, reason),) = await store.rows("SELECT paused_until, pause_reason FROM redrive.destination", [])
        assert before + timedelta(seconds=18.9) < until <= after + timedelta(seconds=19)
        assert reason == "retry_after"
        assert len(relay.seen.of("destination.resumed")) == 0


async def test_a_person_s_pause_outlasts_the_rest(store: PostgresStore, app: App) -> None:
    gate = Gate()

    @app.destination("shop", concurrency=1, policy=SOON)
    async def handle(attempt: Attempt) -> None:
        await gate(attempt.id)
        raise Retryable("HTTP_429", retry_after=0.05)

    await enqueue(store, 3)
    async with relaying(store, app) as relay:
        await relay.seen.that(lambda: gate.inside == 1, what="one to run")
        await store.pause("shop", **BY)
        gate.open()
        await relay.seen.until("message.retried")
        await relay.seen.next("heartbeat.stop", count=4)
        assert len(gate.entered) == 1
        assert relay.seen.of("destination.resumed") == []
    rows = await store.rows("SELECT paused_by, pause_reason, paused_until FROM redrive.destination", [])
    assert [tuple(row) for row in rows] == [("ada", "maintenance", None)]


# all at once


async def test_beside_one_down_one_resting_and_one_paused_the_rest_go_on_and_nobody_pays_for_us(
    store: PostgresStore, app: App
) -> None:
    down = Switch(app, "down", breaker=LONG)
    resting = Switch(app, "resting", off=Retryable("HTTP_429", retry_after=100), concurrency=2)
    paused = Switch(app, "paused", off=None)
    for name in ("one", "two", "three"):
        Switch(app, name, off=None)
    await store.pause("paused", **BY)
    for name in app.destinations:
        await enqueue(store, 300, destination=name)
    async with AsyncExitStack() as stack:
        relays = [await stack.enter_async_context(relaying(store, app)) for _ in range(2)]
        await relays[0].seen.that(
            lambda: sum(len(relay.seen.of("message.delivered")) for relay in relays) == 900, what="the rest"
        )
        for relay in relays:
            await relay.seen.next("heartbeat.stop", count=2)
    assert await states(store) == {"delivered": 900, "pending": 900}
    assert paused.tried == 0
    assert down.tried <= 2 * 10 + 2, "what was in flight when it opened"
    assert await spent(store, "down") == 0
    rows = await store.rows("SELECT sum(spent) FROM redrive.pending WHERE destination = 'resting'", [])
    assert rows[0][0] == resting.tried <= 2 * 2 + 2


async def test_a_stop_waits_for_what_is_being_handed_back(
    store: PostgresStore, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By whom does not matter: the breaker's own task has taken it out of everybody's hand."""
    under_way, goes_on = asyncio.Event(), asyncio.Event()
    hand_back = store.hand_back

    async def slow(*values: Any, **options: Any) -> Any:
        under_way.set()
        await goes_on.wait()
        return await hand_back(*values, **options)

    monkeypatch.setattr(store, "hand_back", slow)
    Switch(app, breaker=LONG, concurrency=6)
    await enqueue(store, 40)
    async with relaying(store, app) as relay:
        await under_way.wait()
        relay.relay.stop()
        asyncio.get_running_loop().call_later(0.3, goes_on.set)  # everything else of the stop is over by then
        await relay.ended()
    assert await states(store) == {"pending": 40}


async def test_a_stop_does_not_wait_for_a_rest_or_an_open_breaker(store: PostgresStore, app: App) -> None:
    Switch(app, breaker=LONG)
    Switch(app, "other", off=Retryable("HTTP_429", retry_after=100))
    await enqueue(store, 20)
    await enqueue(store, 20, destination="other")
    async with relaying(store, app) as relay:
        await relay.seen.until("breaker.opened")
        await relay.seen.until("destination.paused")
        await asyncio.wait_for(relay.stop(), 10)
    assert await states(store) == {"pending": 40}
