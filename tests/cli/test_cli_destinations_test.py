"""`redrive destinations test`: one message goes to a destination that is held back, and what came of it is said."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest

from redrive.answers import Answer, Retryable
from redrive.app import App
from redrive.message import Attempt
from redrive.policy import Breaker
from redrive.store.runtime.postgres import PostgresStore
from tests.cli.conftest import Redrive, Shop
from tests.relay.harness import relaying

pytestmark = pytest.mark.req("G-25")

DOWN = Retryable("CONNECTION_REFUSED", destination_down=True)


@contextmanager
def relay(dsn: str, answer: Answer | None) -> Iterator[list[Attempt]]:
    """A relay for shop, in a thread of its own, whose handler gives this answer; yields what it was given."""
    app, seen, ready, over = App(), list[Attempt](), threading.Event(), threading.Event()

    @app.destination("shop", breaker=Breaker(cool_off_seconds=600, cool_off_max_seconds=3600))
    async def handle(attempt: Attempt) -> None:
        seen.append(attempt)
        if answer is not None:
            raise answer

    async def run() -> None:
        async with PostgresStore(dsn) as store, relaying(store, app) as running:
            await running.seen.until("claim.stop")
            ready.set()
            await asyncio.to_thread(over.wait, 60)

    thread = threading.Thread(target=asyncio.run, args=[run()])
    thread.start()
    assert ready.wait(30)
    try:
        yield seen
    finally:
        over.set()
        thread.join(30)


def open_breaker(shop: Shop, *, seconds: float = 600) -> None:
    now = shop.call(lambda store: store.now())
    opened = shop.call(
        lambda store: store.open_breaker(
            "shop", claimed_at=now, code="CONNECTION_REFUSED", cool_off_seconds=seconds, cool_off_max_seconds=3600
        )
    )
    assert opened.opened


def test_a_destination_that_answers_again_is_said_to(redrive: Redrive, shop: Shop) -> None:
    open_breaker(shop)
    with relay(shop.dsn, None) as seen:
        document = redrive.json("destinations", "test", "shop")
        (probe, *_) = seen
    assert probe.probe
    assert document == {
        "schema": "redrive.destination_test/v1",
        "name": "shop",
        "answered": True,
        "message_id": str(probe.id),
        "answer": "delivered",
        "code": None,
        "breaker": "ramping",
        "breaker_until": document["breaker_until"],
        "paused_until": None,
    }


def test_one_that_is_still_down_is_left_alone_for_longer(redrive: Redrive, shop: Shop) -> None:
    open_breaker(shop)
    with relay(shop.dsn, DOWN) as seen:
        result = redrive("destinations", "test", "shop")
    assert result.exit_code == 1
    assert (
        f"shop: message {seen[0].id} was not answered (retryable CONNECTION_REFUSED); left alone until" in result.stdout
    )
    assert len(seen) == 1
    rows = shop.call(lambda store: store.rows("SELECT breaker, breaker_trips FROM redrive.destination", []))
    assert tuple(rows[0]) == ("open", 2)


def test_one_that_asks_for_a_rest_answers(redrive: Redrive, shop: Shop) -> None:
    shop.call(lambda store: store.pause_until("shop", actor="relay", seconds=300))
    with relay(shop.dsn, Retryable("HTTP_429", retry_after=200)) as seen:
        result = redrive("destinations", "test", "shop")
    assert result.exit_code == 0
    assert f"shop: message {seen[0].id} was answered (retryable HTTP_429); it asks for a rest until" in result.stdout
    assert len(seen) == 1


def test_where_no_relay_takes_the_message_that_is_said(redrive: Redrive, shop: Shop) -> None:
    open_breaker(shop)
    result = redrive("destinations", "test", "shop", "--wait", "0.2")
    assert (result.exit_code, result.stdout.strip()) == (1, "shop: no relay took one yet.")


def test_it_is_kept_in_the_audit(redrive: Redrive, shop: Shop) -> None:
    open_breaker(shop)
    redrive("destinations", "test", "shop", "--wait", "0", "--actor", "anna")
    rows = shop.call(
        lambda store: store.rows("SELECT actor, act, subject, reason FROM redrive.operator_action ORDER BY id DESC", [])
    )
    assert tuple(rows[0]) == ("anna", "half_open", "shop", "test")


def test_what_a_person_paused_is_refused_with_the_reason(redrive: Redrive, shop: Shop) -> None:
    open_breaker(shop)
    redrive("destinations", "pause", "shop", "--reason", "stock-taking")
    result = redrive("destinations", "test", "shop")
    assert result.exit_code == 5
    assert "shop is paused, and a person decides when it goes on" in result.stderr
    assert "redrive destinations resume shop" in result.stderr


def test_what_flows_is_refused(redrive: Redrive, shop: Shop) -> None:
    result = redrive("destinations", "test", "shop")
    assert (result.exit_code, "is not held back" in result.stderr) == (5, True)


def test_with_nothing_due_it_is_refused(redrive: Redrive, shop: Shop) -> None:
    open_breaker(shop)
    shop.call(
        lambda store: store.rows("UPDATE redrive.pending SET due_at = %s RETURNING 1", [shop.now + timedelta(days=1)])
    )
    result = redrive("destinations", "test", "shop")
    assert (result.exit_code, "nothing that is due" in result.stderr) == (5, True)


def test_one_that_nobody_knows_is_not_found(redrive: Redrive, shop: Shop) -> None:
    assert redrive("destinations", "test", "shopp").exit_code == 3


def test_wrong_usage_ends_with_two_and_an_unreachable_database_with_seven(nowhere: Redrive) -> None:
    assert nowhere("destinations", "test").exit_code == 2
    assert nowhere("destinations", "test", "shop", "--wait", "-1").exit_code == 2
    assert nowhere("destinations", "test", "shop").exit_code == 7
