"""Comparing the books with a real rail: late successes are confirmed, never paid again; the rest is a finding."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from redrive.answers import Delivered
from redrive.errors import Unreachable
from redrive.message import ParkReason
from redrive.patterns.reconciliation import Kind
from redrive.policy import Settlement
from redrive.ports import ClaimRequest
from redrive.store.runtime.postgres import PostgresStore
from redrive.systems.payments.names import destination_of
from redrive.systems.payments.rail.script import Profile
from redrive.systems.payments.reconcile import reconcile
from tests.support import messages as m
from tests.systems.payments.books import Books
from tests.systems.payments.rails import order, post, running

pytestmark = pytest.mark.req("P-05")


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
    room = [ClaimRequest(destination_of(books.rail_type), 1, 1)]
    assert not (await books.store.claim(m.WORKER, room, lease_seconds=60)).attempts
    await books.pay(first)
    await books.compare()
    (attempt,) = (await books.store.claim(m.WORKER, room, lease_seconds=60)).attempts
    assert attempt.sequence == 2


@pytest.mark.req("P-10")
async def test_a_payment_that_was_made_and_forgotten_is_delivered_and_never_sent_again(books: Books) -> None:
    """As after a restore that lost the claim and the outcome: it is pending as if nothing had happened."""
    id = await books.submit()
    reference = await books.pay(id)
    compared = await books.compare()
    assert (compared.confirmed, compared.open, list(compared.findings)) == (1, 0, [])
    assert await books.claimed() == []
    (entry,) = [entry for entry in await books.store.history(id) if entry.closed]
    assert (entry.closed, entry.reference, entry.actor) == ("delivered", reference, "reconciliation")
    assert len(books.rail.effects) == 1


async def test_one_that_the_statement_does_not_have_is_not_confirmed(books: Books) -> None:
    id = await books.submit()
    assert await books.store.rows("SELECT redrive_payments.confirm_late_1(%s)", [id]) == [("refused",)]
    assert await m.state_of(books.store, id) == "pending"


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


@pytest.mark.req("P-10")
async def test_after_another_epoch_a_rail_stands_still_until_the_books_agree(books: Books) -> None:
    await books.register()
    id = await books.submit()
    await books.store.rows("UPDATE redrive.epoch SET timeline = timeline - 1 RETURNING 1", [])
    assert await books.paused() == "epoch"
    # Paid before, and lost with the old server.
    await post(books.rail.url, order("lost", rail_type=books.rail_type, instruction_id=f"{books.participant}/2"))
    assert await books.kinds() == [Kind.UNEXPLAINED]
    assert await books.paused() == "epoch"
    lost = await books.submit(2, participant="acme")
    assert await m.state_of(books.store, lost) == "parked·held", "the entry was waiting for it"
    compared = await books.compare()
    assert (compared.confirmed, list(compared.findings)) == (1, [])
    assert await books.paused() == "epoch", "what changed something is not clean"
    assert await books.kinds() == []
    assert await books.paused() is None
    (attempt,) = await books.claimed()
    assert (attempt.id, attempt.in_doubt) == (id, True), "what waited at the epoch is asked about before it is sent"


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
