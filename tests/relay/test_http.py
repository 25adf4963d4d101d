"""A relay that sends over HTTP: a reply that was lost is asked for, and never a second effect."""

from __future__ import annotations

from collections import Counter

import pytest
from aiohttp import web

from redrive.app import App
from redrive.policy import Backoff, Policy
from redrive.store.runtime.postgres import PostgresStore
from redrive.transports.http import HttpTransport
from tests.relay.harness import enqueue, relaying, states
from tests.transports.servers import HERE, hang_up, serving

LOST = 200


@pytest.mark.req("G-13")
async def test_two_hundred_lost_replies_are_looked_up_and_each_message_has_one_effect(
    store: PostgresStore, app: App
) -> None:
    effects: Counter[str] = Counter()
    asked: Counter[str] = Counter()

    async def take(request: web.Request) -> web.StreamResponse:
        """The effect happens, and nobody hears of it."""
        if request.method == "GET":
            token = request.path.rpartition("/")[2]
            asked[token] += 1
            return web.Response(status=200 if effects[token] else 404, headers={"X-Ref": f"ref-{token}"})
        effects[request.headers["Idempotency-Key"].strip('"')] += 1
        return await hang_up(request)

    async with serving(take) as destination:
        transport = HttpTransport(
            destination.url,
            egress=HERE,
            lookup_url=f"{destination.url}/by/{{token}}",
            reference_header="X-Ref",
        )
        soon = Backoff(initial_seconds=0.05, max_seconds=0.1)
        app.transport("shop", transport, policy=Policy(backoff=soon, lookup_backoff=soon))
        await enqueue(store, LOST)
        async with relaying(store, app) as relay:
            await relay.seen.until("message.delivered", count=LOST)
        await transport.aclose()
    assert await states(store) == {"delivered": LOST}
    assert len(effects) == LOST
    assert set(effects.values()) == {1}
    assert set(asked) == set(effects)
    rows = await store.rows("SELECT DISTINCT code FROM redrive.attempt WHERE answer = 'unknown'", [])
    assert rows == [("CONNECTION_LOST",)]
