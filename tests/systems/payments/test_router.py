"""Payments over HTTP: who sees one tenant sees that one's, and another's answers as one that never was."""

from __future__ import annotations

import psycopg
import pytest

from redrive.operate.web.app import create_app
from redrive.operate.web.auth_config import AuthConfig
from redrive.operate.web.principal import Role
from redrive.systems import payments
from tests.api.conftest import ORIGIN, House, asking, bearer
from tests.systems.payments.conftest import instruction

pytestmark = [pytest.mark.req("P-01"), pytest.mark.req("G-30")]
PAYMENTS = "/api/v1/payments"


async def test_an_instruction_is_shown_with_its_messages_to_who_may_see_it(paying: str, participant: str) -> None:
    with psycopg.connect(paying) as conn:
        submitted = payments.submit(conn, instruction(participant, 1))
    house = House(paying)
    app = create_app(paying, AuthConfig(origin=ORIGIN), systems={"payments": payments.system})
    async with asking(app) as client:
        everybody, own, other = [
            bearer(await house.token(Role.VIEWER, tenant)) for tenant in ("*", "default", "another")
        ]
        for headers in (everybody, own):
            shown = (await client.get(f"{PAYMENTS}/instructions/{participant}/1", headers=headers)).json()
            assert (shown["amount"], shown["currency"], shown["participant_id"]) == ("12.34", "EUR", participant)
            assert [(one["outbox_id"], one["state"]) for one in shown["intents"]] == [
                (str(submitted.outbox_id), "pending")
            ]
        foreign = await client.get(f"{PAYMENTS}/instructions/{participant}/1?tenant=default", headers=other)
        unknown = await client.get(f"{PAYMENTS}/instructions/{participant}/2?tenant=default", headers=own)
        assert (foreign.status_code, unknown.status_code) == (404, 404)
        assert foreign.text == unknown.text.replace(f"{participant}/2", f"{participant}/1")
        listed = await client.get(f"{PAYMENTS}/participants?limit=500", headers=own)
        assert participant in [one["participant_id"] for one in listed.json()["items"]]
        assert (await client.get(f"{PAYMENTS}/participants?tenant=default", headers=other)).json()["items"] == []
        assert (await client.get(f"{PAYMENTS}/participants")).status_code == 401
