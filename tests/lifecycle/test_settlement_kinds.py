"""A settlement that leads nowhere is refused by the database: the message stays where it is."""

from __future__ import annotations

import psycopg
import pytest

from redrive.policy import Settlement, SettlementKind
from redrive.ports import Outcome
from redrive.store.runtime.postgres import PostgresStore
from tests.support import messages

pytestmark = [pytest.mark.req("G-06"), pytest.mark.req("G-28")]


@pytest.mark.parametrize("kind", [SettlementKind.HAND_BACK, SettlementKind.CLOSE, SettlementKind.PARK])
async def test_a_settlement_without_its_end_loses_nothing(database: str, kind: SettlementKind) -> None:
    async with PostgresStore(database) as store:
        await messages.enqueue(store)
        attempt = await messages.claim(store)
        outcome = Outcome(attempt=attempt, settlement=Settlement(kind=kind))
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="must close, advance, retry or park"):
            await store.settle(messages.WORKER, [outcome], now=messages.at())
        assert await store.is_leased(attempt.fence)
