"""Comparing the books with a real rail: late successes are confirmed, never paid again; the rest is a finding."""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from redrive.answers import Delivered
from redrive.errors import Unreachable
from redrive.message import MessageId, ParkReason
from redrive.patterns.reconciliation import Kind
from redrive.policy import Settlement
from redrive.ports import RelayInfo, Room
from redrive.store.postgres import PostgresStore
from redrive.systems import payments
from redrive.systems.payments.names import destination_of
from redrive.systems.payments.rail.script import Profile
from redrive.systems.payments.reconcile import Compared, reconcile
from tests.support import messages as m
from tests.systems.payments.conftest import IBAN
from tests.systems.payments.rails import Running, order, post, running

pytestmark = pytest.mark.req("P-05")


class Books:
    """A rail type of this test's own, with its rail and its payments."""

    def __init__(self, store: PostgresStore, dsn: str, rail: Running) -> None:
        self.store, self.dsn, self.rail = store, dsn, rail
        self.rail_type = f"r{secrets.token_hex(5)}"
        self.participant = f"p-{self.rail_type}"
        with psycopg.connect(dsn) as conn:
            payments.add_participant(conn, self.participant)

    async def submit(self, number: int = 1) -> MessageId:
        with psycopg.connect(self.dsn) as conn:
            instruction = payments.Instruction(
                instruction_id=f"{self.participant}/{number}",
                participant_id=self.participant,
                rail_type=self.rail_type,
                amount="12.34",
                currency="EUR",
                destination={"iban": IBAN},
            )
            return payments.submit(conn, instruction).outbox_id

    async def settle(self, settlement: Settlement) -> None:
        """The next payment ends like this, whatever the rail knows of it."""
        rooms = [Room(destination_of(self.rail_type), 1, 1)]
        (attempt,) = (await self.store.claim(m.WORKER, rooms, lease_seconds=60)).attempts
        await self.store.settle(m.WORKER, [m.outcome(attempt, settlement)])

    async def pay(self, id: MessageId, number: int = 1, **other: Any) -> str:
        """As the rail does it, whoever asked for it."""
        body = order(
            str(id),
            instruction_id=f"{self.participant}/{number}",
            participant_id=self.participant,
            sequence_id=number,
            rail_type=self.rail_type,
            **other,
        )
        _, said, _ = await post(self.rail.url, body)
        return str(said["reference"])

    async def compare(self) -> Compared:
        return await reconcile(self.store, self.rail.rail(rail_type=self.rail_type), lag_seconds=0)

    async def kinds(self) -> list[str]:
        return [finding.kind for finding in (await self.compare()).findings]

    async def findings(self) -> list[tuple[str, bool]]:
        """As they are written down: the kind, and whether it is resolved."""
        rows = await self.store.rows(
            "SELECT kind, resolved_at IS NOT NULL FROM redrive_payments.finding WHERE rail_type = %s ORDER BY kind",
            [self.rail_type],
        )
        return [tuple(row) for row in rows]


@pytest.fixture
async def books(paying: str, tmp_path: Path) -> AsyncIterator[Books]:
    async with running(tmp_path / "rail.log") as rail, PostgresStore(paying, connections=2) as store:
        yield Books(store, paying, rail)


def delivered(reference: str) -> Settlement:
    return m.close(Delivered(reference))


async def test_what_agrees_is_over_and_not_looked_at_again(books: Books) -> None:
    id = await books.submit()
    await books.settle(delivered(await books.pay(id)))
    first, again = await books.compare(), await books.compare()
    assert (first.read, first.agreed, list(first.findings)) == (1, 1, [])
    assert (again.read, again.agreed, again.open, list(again.findings)) == (0, 0, 0, [])


@pytest.mark.parametrize("reason", [ParkReason.HELD, ParkReason.DEAD])
async def test_a_late_success_of_what_is_parked_becomes_delivered_with_the_rails_reference(
    books: Books, reason: ParkReason
) -> None:
    id = await books.submit()
    await books.settle(m.park(reason))
    assert (await books.compare()).confirmed == 0
    reference = await books.pay(id)
    compared = await books.compare()
    assert (compared.confirmed, list(compared.findings)) == (1, [])
    (entry,) = [entry for entry in await books.store.history(id) if entry.closed]
    assert (entry.verb, entry.closed, entry.reference, entry.actor) == (
        "confirm",
        "delivered",
        reference,
        "reconciliation",
    )
    assert (await books.compare()).agreed == 1
    assert len(books.rail.effects) == 1


async def test_the_next_payment_of_the_participant_goes_once_the_held_one_is_confirmed(books: Books) -> None:
    first, _ = await books.submit(1), await books.submit(2)
    await books.settle(m.park(ParkReason.HELD))
    room = [Room(destination_of(books.rail_type), 1, 1)]
    assert not (await books.store.claim(m.WORKER, room, lease_seconds=60)).attempts
    await books.pay(first)
    await books.compare()
    (attempt,) = (await books.store.claim(m.WORKER, room, lease_seconds=60)).attempts
    assert attempt.sequence == 2


async def test_a_payment_that_was_made_and_forgotten_is_asked_about_before_it_is_sent_again(books: Books) -> None:
    """As after a failover that lost the claim and the outcome: it is pending as if nothing had happened."""
    id = await books.submit()
    await books.pay(id)
    compared = await books.compare()
    assert (compared.open, list(compared.findings)) == (1, [])
    room = [Room(destination_of(books.rail_type), 1, 1)]
    (attempt,) = (await books.store.claim(m.WORKER, room, lease_seconds=60)).attempts
    assert attempt.in_doubt
    acts = await books.store.rows("SELECT actor, act FROM redrive.operator_action WHERE subject = %s", [str(id)])
    assert acts == [("reconciliation", "doubt")]
    assert await books.store.rows("SELECT redrive_payments.ask_first_1(%s)", [id]) == [("busy",)]


async def test_one_that_the_statement_does_not_have_is_not_put_in_doubt(books: Books) -> None:
    id = await books.submit()
    assert await books.store.rows("SELECT redrive_payments.ask_first_1(%s)", [id]) == [("refused",)]


async def test_an_effect_that_nobody_asked_for_is_a_finding_with_its_entry(books: Books) -> None:
    await post(books.rail.url, order("stranger"))
    (finding,) = (await books.compare()).findings
    assert finding.kind is Kind.UNEXPLAINED
    assert finding.evidence["ledger"][0]["token"] == "stranger"
    assert await books.kinds() == [Kind.UNEXPLAINED], "it stays one until it is explained"


async def test_another_amount_is_a_finding_and_is_never_confirmed(books: Books) -> None:
    id = await books.submit()
    await books.settle(m.park(ParkReason.HELD))
    await books.pay(id, amount="12.35")
    assert await books.kinds() == [Kind.DIFFERS]
    assert await m.state_of(books.store, id) == "parked·held"
    (answer,) = await books.store.rows("SELECT redrive_payments.confirm_late_1(%s)", [id])
    assert answer == ("refused",)


async def test_two_effects_of_one_payment_are_a_finding_also_when_the_second_comes_late(
    paying: str, tmp_path: Path
) -> None:
    async with (
        running(tmp_path / "rail.log", profile=Profile.LOOKUP) as rail,
        PostgresStore(paying, connections=2) as store,
    ):
        books = Books(store, paying, rail)
        id = await books.submit()
        await books.settle(delivered(await books.pay(id)))
        assert await books.kinds() == []
        await books.pay(id)
        assert await books.kinds() == [Kind.TWICE]


async def test_a_delivered_payment_that_the_rail_does_not_have_is_missing_until_it_has(books: Books) -> None:
    id = await books.submit()
    await books.settle(delivered("R-00000001"))
    assert await books.kinds() == [Kind.MISSING]
    assert await books.findings() == [("missing", False)]
    await books.pay(id)
    assert await books.kinds() == []
    assert await books.findings() == [("missing", True)]


async def test_one_that_was_delivered_a_moment_ago_may_not_be_in_the_statement_yet(books: Books) -> None:
    await books.submit()
    await books.settle(delivered("R-00000001"))
    compared = await reconcile(books.store, books.rail.rail(rail_type=books.rail_type), lag_seconds=600)
    assert (compared.open, list(compared.findings)) == (1, [])


async def test_a_payment_that_was_given_up_and_made_is_a_finding(books: Books) -> None:
    id = await books.submit()
    await books.store.cancel(id)
    await books.pay(id)
    assert await books.kinds() == [Kind.GIVEN_UP]


async def test_a_rail_whose_statement_cannot_be_read_changes_nothing(books: Books) -> None:
    id = await books.submit()
    await books.settle(delivered(await books.pay(id)))
    gone = books.rail.rail(rail_type=books.rail_type, url="http://127.0.0.1:9")
    with pytest.raises(Unreachable):
        await reconcile(books.store, gone, lag_seconds=0)
    assert (await books.compare()).agreed == 1


@pytest.mark.parametrize(
    "said",
    [
        b"<html>",
        b"[]",
        b'{"entries": []}',
        b'{"entries": [{"cursor": "1"}], "next": null}',
        json.dumps({"entries": [{**order(), "cursor": 1, "effected_at": 0}], "next": None}).encode(),
        json.dumps({"entries": [{**order(amount="NaN"), "cursor": "1", "effected_at": 0}], "next": None}).encode(),
    ],
)
async def test_what_is_no_page_of_a_statement_changes_nothing(books: Books, said: bytes) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=said)

    app = web.Application()
    app.router.add_get("/statement", answer)
    async with TestServer(app) as server:
        broken = books.rail.rail(rail_type=books.rail_type, url=str(server.make_url("")))
        with pytest.raises(Unreachable, match="no page of a statement"):
            await reconcile(books.store, broken, lag_seconds=0)
    assert await books.findings() == []


async def test_after_another_epoch_a_rail_stands_still_until_the_books_agree(books: Books) -> None:
    name = destination_of(books.rail_type)
    relay = RelayInfo(worker=m.WORKER, name="r", host="h", pid=1, version="1", destinations=[name], money=[name])
    await books.store.register(relay)
    id = await books.submit()
    await books.store.rows("UPDATE redrive.epoch SET timeline = timeline - 1 RETURNING 1", [])
    (paused,) = await books.store.heartbeat(m.WORKER)
    assert paused.pause_reason == "epoch"
    await post(
        books.rail.url, order("lost", rail_type=books.rail_type)
    )  # committed before, and lost with the old server
    assert await books.kinds() == [Kind.UNEXPLAINED]
    assert (await books.store.heartbeat(m.WORKER))[0].paused
    await books.store.rows(
        "DELETE FROM redrive_payments.statement_entry WHERE rail_type = %s RETURNING 1", [books.rail_type]
    )
    assert await books.kinds() == []
    assert not (await books.store.heartbeat(m.WORKER))[0].paused
    assert await m.state_of(books.store, id) == "pending"


async def test_findings_are_kept_with_their_evidence_for_people(books: Books) -> None:
    id = await books.submit()
    await books.settle(delivered("R-9"))
    await books.pay(id)
    await books.compare()
    ((sentence, evidence),) = await books.store.rows(
        "SELECT sentence, evidence::text FROM redrive_payments.finding WHERE rail_type = %s", [books.rail_type]
    )
    assert str(id) in sentence
    assert json.loads(evidence)["instruction_id"] == f"{books.participant}/1"
