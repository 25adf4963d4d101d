"""A rail of a test's own, with its payments: what is asked for, what the engine believes, what the rail did."""

from __future__ import annotations

import secrets
from typing import Any
from uuid import uuid4

import psycopg

from redrive.message import Attempt, MessageId, WorkerId
from redrive.policy import Settlement
from redrive.ports import ClaimRequest, RelayInfo
from redrive.store.runtime.postgres import PostgresStore
from redrive.systems import payments
from redrive.systems.payments.names import destination_of
from redrive.systems.payments.reconcile import Compared, reconcile
from tests.support import messages as m
from tests.systems.payments.conftest import IBAN
from tests.systems.payments.rails import Running, order, post


class Books:
    """A rail type of this test's own, with its rail and its payments."""

    def __init__(self, store: PostgresStore, dsn: str, rail: Running) -> None:
        self.store, self.dsn, self.rail = store, dsn, rail
        self.rail_type = f"r{secrets.token_hex(5)}"
        self.worker = WorkerId(uuid4())
        self.participant = f"p-{self.rail_type}"
        with psycopg.connect(dsn) as conn:
            payments.add_participant(conn, self.participant)

    async def submit(self, number: int = 1, *, participant: str | None = None, key: str | None = None) -> MessageId:
        with psycopg.connect(self.dsn) as conn:
            payments.add_participant(conn, participant or self.participant)
            instruction = payments.Instruction(
                instruction_id=f"{self.participant}/{number}",
                participant_id=participant or self.participant,
                **({} if key is None else {"idempotency_key": key}),
                rail_type=self.rail_type,
                amount="12.34",
                currency="EUR",
                destination={"iban": IBAN},
            )
            return payments.submit(conn, instruction).outbox_id

    async def settle(self, settlement: Settlement) -> None:
        """The next payment ends like this, whatever the rail knows of it."""
        claim_requests = [ClaimRequest(destination_of(self.rail_type), 1, 1)]
        (attempt,) = (await self.store.claim(m.WORKER, claim_requests, lease_seconds=60)).attempts
        await self.store.settle(m.WORKER, [m.outcome(attempt, settlement)])

    async def token(self, id: MessageId) -> str:
        """Under which the engine sends it."""
        query = "SELECT coalesce(token, outbox_id) FROM redrive_payments.intent WHERE outbox_id = %s"
        return str((await self.store.rows(query, [id]))[0][0])

    async def register(self, *, effects_within_seconds: float = 0.0, in_doubt: str = "lookup") -> None:
        """As a relay that runs this rail does."""
        name = self.name
        await self.store.register(
            RelayInfo(
                worker=self.worker,
                name="r",
                host="h",
                pid=1,
                version="1",
                destinations=[name],
                money=[name],
                in_doubt={name: in_doubt},
                effects_within_seconds={name: effects_within_seconds},
            )
        )

    @property
    def name(self) -> str:
        return destination_of(self.rail_type)

    async def paused(self) -> str | None:
        """Why, or None."""
        states = {state.name: state for state in await self.store.heartbeat(self.worker)}
        return states[self.name].pause_reason

    async def claimed(self) -> list[Attempt]:
        claim_requests = [ClaimRequest(self.name, 1, 10)]
        return list((await self.store.claim(m.WORKER, claim_requests, lease_seconds=60)).attempts)

    async def pay(self, id: MessageId, number: int = 1, **other: Any) -> str:
        """As the rail does it, whoever asked for it."""
        body = order(
            await self.token(id),
            instruction_id=f"{self.participant}/{number}",
            participant_id=self.participant,
            sequence_id=number,
            rail_type=self.rail_type,
            **other,
        )
        _, said, _ = await post(self.rail.url, body)
        return str(said["reference"])

    async def compare(self, **of_rail: Any) -> Compared:
        return await reconcile(self.store, self.rail.rail(rail_type=self.rail_type, **of_rail), lag_seconds=0)

    async def kinds(self) -> list[str]:
        return [finding.kind for finding in (await self.compare()).findings]

    async def findings(self) -> list[tuple[str, bool]]:
        """As they are written down: the kind, and whether it is resolved."""
        rows = await self.store.rows(
            "SELECT kind, resolved_at IS NOT NULL FROM redrive_payments.finding WHERE rail_type = %s ORDER BY kind",
            [self.rail_type],
        )
        return [tuple(row) for row in rows]
