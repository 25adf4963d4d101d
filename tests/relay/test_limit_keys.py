"""One tenant's endpoint that is down, slow, resting or full of bugs stops nothing but its own messages (G-31)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from redrive.answers import Answer, Retryable
from redrive.app import App
from redrive.message import Attempt
from redrive.policy import Backoff, Breaker, Policy
from redrive.store.runtime.postgres import PostgresStore
from redrive.transports.http import Egress, HttpTransport
from tests.relay.harness import Gate, relaying, states
from tests.transports.servers import serving, status

pytestmark = [pytest.mark.req("G-31"), pytest.mark.req("G-25")]

SOON = Policy(backoff=Backoff(initial_seconds=0, max_seconds=0, jitter="none"))
DOWN = Retryable("CONNECTION_REFUSED", destination_down=True)
BY: dict[str, Any] = {"actor": "ada", "reason": "maintenance"}


async def put(
    store: PostgresStore, tenant: str, count: int = 1, *, body: str = "{}", headers: str | None = None
) -> None:
    await store.rows(
        "SELECT redrive.enqueue_1('hooks', %s, p_tenant => %s, p_headers => %s::json) FROM generate_series(1, %s)",
        [body.encode(), tenant, headers, count],
    )


async def by_tenant(store: PostgresStore, table: str = "pending") -> dict[str, int]:
    rows = await store.rows(f"SELECT tenant, count(*) FROM redrive.{table} GROUP BY tenant", [])
    return {str(tenant): int(count) for tenant, count in rows}


async def keys(store: PostgresStore) -> dict[str, tuple[bool, str]]:
    """Those that are not plain: whether paused, and the state of the breaker."""
    return {state.key: (state.paused, state.breaker) for state in await store.limit_keys(["hooks"], limit=100)}


async def is_paused(store: PostgresStore) -> bool:
    return bool((await store.rows("SELECT redrive.is_paused('hooks', now())", []))[0][0])


def per_message(*ports: int) -> HttpTransport:
    """To the URL that a message names, on these ports of this machine."""
    egress = Egress(allow=["127.0.0.0/8"], schemes=frozenset({"http"}), ports=frozenset(ports))
    return HttpTransport(lambda m: m.payload["url"], egress=egress)


class Tenants:
    """A destination with a limit key for each tenant; those that are switched off give an answer instead."""

    def __init__(self, app: App, *, off: dict[str, Answer | Exception] | None = None, **options: Any) -> None:
        self.off = off or {}
        self.tried: Counter[str] = Counter()
        self.gates: dict[str, Gate] = {}
        app.destination("hooks", **{"policy": SOON, "limit_key": lambda m: m.tenant, **options})(self.send)

    async def send(self, attempt: Attempt) -> None:
        self.tried[attempt.tenant] += 1
        if attempt.tenant in self.gates:
            await self.gates[attempt.tenant](attempt.id)
        if attempt.tenant in self.off:
            raise self.off[attempt.tenant]


async def test_a_retry_after_of_one_host_rests_that_host_alone(store: PostgresStore, app: App) -> None:
    async with serving(status(429, Retry_After="3600")) as busy, serving() as well:
        transport = per_message(busy.port, well.port)
        app.transport("hooks", transport, policy=SOON)
        await put(store, "busy", 30, body=f'{{"url": "{busy.url}"}}')
        await put(store, "well", 30, body=f'{{"url": "{well.url}"}}')
        async with relaying(store, app) as relay:
            await relay.seen.until("message.delivered", count=30)
            await relay.seen.that(lambda: not relay.relay._leases.claims, what="all is put off or delivered")
        await transport.aclose()
    host = f"127.0.0.1:{busy.port}"
    assert (await keys(store))[host][0]
    assert not await is_paused(store)
    assert await by_tenant(store) == {"busy": 30}
    assert len(busy.asked) <= 5, "what was under way when the first was answered"
    rows = await store.rows(
        "SELECT count(*) FROM redrive.pending WHERE due_at > now() + interval '1 minute' AND spent <= 1", []
    )
    assert rows[0][0] == 30


async def test_a_key_that_is_down_is_left_alone_and_nobody_pays(store: PostgresStore, app: App) -> None:
    tenants = Tenants(app, off={"down": DOWN}, breaker=Breaker(failures=3, cool_off_seconds=100), concurrency=2)
    await put(store, "down", 20)
    async with relaying(store, app) as relay:
        await relay.seen.until("limit_key.opened", key="down", code="CONNECTION_REFUSED")
        await put(store, "well", 20)
        await relay.seen.until("message.delivered", count=20)
        await relay.seen.that(lambda: not relay.relay._leases.claims, what="all is put off or delivered")
    assert tenants.tried == {"down": 3, "well": 20}
    assert await keys(store) == {"down": (False, "open")}
    assert await by_tenant(store) == {"down": 20}
    assert (await store.rows("SELECT max(spent) FROM redrive.pending", []))[0][0] == 0


async def test_a_key_that_recovers_gets_one_probe_and_then_the_rest(store: PostgresStore, app: App) -> None:
    tenants = Tenants(app, off={"down": DOWN}, breaker=Breaker(failures=3, cool_off_seconds=0.2))
    await put(store, "down", 4)
    async with relaying(store, app) as relay:
        await relay.seen.until("limit_key.opened", key="down")
        tenants.off.clear()
        await relay.seen.until("limit_key.recovered", key="down")
        await relay.seen.until("message.delivered", count=4)
    assert await states(store) == {"delivered": 4}


async def test_two_thousand_messages_of_a_resting_key_are_put_off_once_and_hold_up_nobody(
    store: PostgresStore, app: App
) -> None:
    tenants = Tenants(app)
    await store.rest_key("hooks", "resting", actor="relay", seconds=3600)
    await put(store, "resting", 2000)
    await put(store, "well")
    async with relaying(store, app) as relay:
        await relay.seen.until("message.delivered")
        await relay.seen.next("relay.idle", count=3)
        claims = [values["count"] for values in relay.seen.of("claim.stop") if values["count"]]
    assert tenants.tried == {"well": 1}
    assert sum(claims) == 2001, "none is claimed twice"
    assert len(claims) <= 20, "in bulk"
    assert await by_tenant(store) == {"resting": 2000}


async def test_a_resumed_key_goes_on_at_once(store: PostgresStore, app: App) -> None:
    tenants = Tenants(app)
    await store.pause_key("hooks", "acme", **BY)
    await put(store, "acme", 5)
    async with relaying(store, app) as relay:
        await relay.seen.until("hand_back.stop", count=1)
        await relay.seen.that(lambda: not relay.relay._leases.claims, what="all is put off")
        assert not tenants.tried
        await store.resume_key("hooks", "acme", **BY)
        await relay.seen.until("message.delivered", count=5)


async def test_a_key_that_another_relay_has_stopped_is_heard_of(store: PostgresStore, app: App) -> None:
    tenants = Tenants(app)
    async with relaying(store, app) as relay:
        await store.pause_key("hooks", "acme", **BY)
        await relay.seen.until("limit_key.paused", key="acme", reason="maintenance")
        await put(store, "acme", 5)
        await put(store, "well", 5)
        await relay.seen.until("message.delivered", count=5)
        await relay.seen.that(lambda: not relay.relay._leases.claims, what="all is put off or delivered")
    assert tenants.tried == {"well": 5}


# bugs


@pytest.mark.req("G-10")
async def test_eleven_bad_messages_of_one_tenant_pause_its_key_and_nobody_else(store: PostgresStore, app: App) -> None:
    """They name no URL; nothing of them can be sent, and nothing of it is the others' fault."""
    async with serving() as well:
        transport = per_message(well.port)
        app.transport("hooks", transport, policy=SOON, concurrency=4)
        await put(store, "bad", 11)
        async with relaying(store, app) as relay:
            await relay.seen.until("limit_key.paused", reason="bug")
            await put(store, "well", 20, body=f'{{"url": "{well.url}"}}')
            await relay.seen.until("message.delivered", count=20)
            await relay.seen.that(lambda: not relay.relay._leases.claims, what="all is put off or delivered")
        await transport.aclose()
    assert not await is_paused(store)
    assert await keys(store) == {"tenant bad": (True, "closed")}


@pytest.mark.req("G-10")
async def test_bugs_with_every_tenant_pause_the_whole_destination(store: PostgresStore, app: App) -> None:
    tenants = Tenants(app, off={f"t{n}": ZeroDivisionError() for n in range(5)}, concurrency=1)
    for number in range(5):
        await put(store, f"t{number}", 8)
    async with relaying(store, app) as relay:
        await relay.seen.until("destination.paused", destination="hooks", reason="bug")
    assert await is_paused(store)
    assert sum(tenants.tried.values()) == 10


# slots


async def test_a_key_that_hangs_costs_half_of_the_slots_at_most(store: PostgresStore, app: App) -> None:
    tenants = Tenants(app, concurrency=4, timeout_seconds=60)
    hanging = tenants.gates["hanging"] = Gate()
    await put(store, "hanging", 200)
    await put(store, "well", 100)
    async with relaying(store, app) as relay:
        await relay.seen.until("message.delivered", count=100)
        assert hanging.most == 2
        await relay.seen.that(lambda: len(relay.relay._leases.claims) <= 4, what="what waits for it is handed back")
        hanging.open()


# rate


async def test_a_rate_is_that_of_each_key(store: PostgresStore, app: App) -> None:
    tenants = Tenants(app, rate=0.001)
    await put(store, "a", 50)
    await put(store, "b", 50)
    async with relaying(store, app) as one, relaying(store, app) as two:
        await one.seen.that(lambda: sum(tenants.tried.values()) >= 2, what="one of each")
        for relay in (one, two):
            await relay.seen.that(lambda relay=relay: not relay.relay._leases.claims, what="the rest is put off")  # type: ignore[misc]
    assert tenants.tried == {"a": 1, "b": 1}
    assert await by_tenant(store) == {"a": 49, "b": 49}
    rows = await store.rows("SELECT count(*) FROM redrive.pending WHERE due_at < now() + interval '10 minutes'", [])
    assert rows[0][0] == 0, "none is claimed in a circle"
