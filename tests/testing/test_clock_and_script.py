"""Retries, delays, expiry, doubt and dead letters of a test's own transaction, without waiting for any of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

import redrive
from redrive import Absent, CannotTell, Delivered, Found, Retryable, Terminal, Unknown
from redrive.testing import ManualClock, ScriptedTransport, Slow, adrain, assert_parked, drain, parked, rewired
from tests.testing.conftest import Connection


def scripted(script: ScriptedTransport, **options: Any) -> redrive.App:
    app = redrive.App()
    app.transport("mail", script, **options)
    return app


def test_a_retry_comes_due_when_the_clock_is_advanced_and_not_before(conn: Connection) -> None:
    mail, clock = ScriptedTransport(Retryable("BUSY"), Delivered("id-1")), ManualClock()
    hourly = redrive.Backoff(initial_seconds=3600, max_seconds=3600, jitter="none")
    app = scripted(mail, policy=redrive.Policy(backoff=hourly))
    receipt = redrive.enqueue(conn, "mail", 1)
    assert drain(conn, app, clock=clock).retried == [receipt.id]
    clock.advance(timedelta(minutes=59))
    assert drain(conn, app, clock=clock).delivered == []
    clock.advance(120)
    assert drain(conn, app, clock=clock).delivered == [receipt.id]
    assert [attempt.number for attempt in mail.sent] == [1, 2]
    mail.assert_used_up()


def test_to_the_end_goes_through_every_retry_of_a_day_until_the_message_is_dead(conn: Connection) -> None:
    mail, clock = ScriptedTransport(*[Retryable("BUSY")] * 12), ManualClock()
    receipt = redrive.enqueue(conn, "mail", 1, key="one")
    done = drain(conn, scripted(mail), clock=clock, to_the_end=True)
    assert (len(done.retried), done.parked) == (11, [receipt.id])
    assert clock.advanced_seconds > 3600
    mail.assert_used_up()
    assert_parked(conn, "mail", "BUSY", reason="dead", key="one", exhausted=True, attempts=12)
    with pytest.raises(AssertionError, match="There are:"):
        assert_parked(conn, "mail", "OTHER")
    with pytest.raises(TypeError, match="payload"):
        assert_parked(conn, "mail", "BUSY", payload=1)


def test_the_end_is_reached_though_somebody_waits_for_a_person_and_others_behind_him(conn: Connection) -> None:
    mail = ScriptedTransport(Terminal("LOCKED"))
    for n in (1, 2):
        redrive.enqueue(conn, "mail", n, order_by="one key")
    drain(conn, scripted(mail), clock=ManualClock(), to_the_end=True)
    assert [one.error_class for one in parked(conn, "mail")] == ["LOCKED"]
    mail.assert_used_up()


def test_a_delayed_message_is_sent_once_it_is_due_and_an_expired_one_never(conn: Connection, app: redrive.App) -> None:
    clock, now = ManualClock(), datetime.now(UTC)
    delayed = redrive.enqueue(conn, "mail", 1, due_at=now + timedelta(days=1))
    redrive.enqueue(conn, "mail", 2, due_at=now + timedelta(days=1), expires_at=now + timedelta(days=2))
    assert drain(conn, app, clock=clock).delivered == []
    clock.advance(timedelta(days=3))
    done = drain(conn, app, clock=clock)
    assert (done.delivered, done.expired) == ([delayed.id], 1)


def test_in_order_a_head_that_waits_holds_back_the_others_until_it_is_through(conn: Connection) -> None:
    mail = ScriptedTransport(Retryable("BUSY"), None, None)
    ids = [redrive.enqueue(conn, "mail", n, order_by="one key").id for n in (1, 2)]
    done = drain(conn, scripted(mail), clock=ManualClock(), to_the_end=True)
    assert done.delivered == ids
    assert [attempt.payload for attempt in mail.sent] == [1, 1, 2]


def test_in_doubt_the_script_is_asked_first(conn: Connection) -> None:
    mail = ScriptedTransport(Unknown("LOST"), Unknown("LOST"), lookups=[CannotTell(), Absent(), Found("id-1")])
    receipt = redrive.enqueue(conn, "mail", 1)
    done = drain(conn, scripted(mail), clock=ManualClock(), to_the_end=True)
    assert done.delivered == [receipt.id]
    assert (len(mail.sent), len(mail.asked)) == (2, 3)
    mail.assert_used_up()


def test_a_send_that_is_slower_than_its_timeout_is_cut_off_without_waiting_for_it(conn: Connection) -> None:
    clock = ManualClock()
    mail = ScriptedTransport(Slow(Delivered(), seconds=20, clock=clock), Slow(Delivered(), seconds=40, clock=clock))
    redrive.enqueue(conn, "mail", 1)
    redrive.enqueue(conn, "mail", 2, order_by="behind")
    app = scripted(mail, in_doubt="hold", concurrency=1)
    done = drain(conn, app, clock=clock)
    assert len(done.delivered) == 1
    assert_parked(conn, "mail", "TIMEOUT", reason="held")


def test_a_step_may_raise_or_be_a_function_and_a_network_error_is_classified_as_in_a_handler(conn: Connection) -> None:
    def by_payload(attempt: redrive.Attempt) -> redrive.Delivered:
        return Delivered(str(attempt.payload))

    async def later(attempt: redrive.Attempt) -> None:
        raise ConnectionRefusedError

    mail = ScriptedTransport(later, by_payload)
    receipt = redrive.enqueue(conn, "mail", "x")
    done = drain(conn, scripted(mail), clock=ManualClock(), to_the_end=True)
    assert (done.retried, done.delivered) == ([receipt.id], [receipt.id])


def test_a_script_that_is_not_used_up_and_one_that_is_too_short_are_both_told(conn: Connection) -> None:
    with pytest.raises(AssertionError, match="1 steps of the script were not taken"):
        ScriptedTransport(None).assert_used_up()
    mail = ScriptedTransport()
    redrive.enqueue(conn, "mail", 1)
    drain(conn, scripted(mail))
    assert_parked(conn, "mail", "SCRIPT_ENDED")
    with pytest.raises(AssertionError, match="1 attempts or lookups came after its end"):
        mail.assert_used_up()


def test_an_app_is_rewired_without_being_changed_and_keeps_its_rules(conn: Connection, sent: list[Any]) -> None:
    app = redrive.App()
    app.destination("mail", policy=redrive.Policy(attempts=1))(lambda message: sent.append(message.payload))
    mail = ScriptedTransport(Retryable("BUSY"))
    redrive.enqueue(conn, "mail", 1)
    drain(conn, rewired(app, {"mail": mail}))
    assert_parked(conn, "mail", "BUSY", exhausted=True)
    redrive.enqueue(conn, "mail", 2)
    drain(conn, app)
    assert sent == [2]
    with pytest.raises(KeyError, match="post"):
        rewired(app, {"post": mail})


async def test_an_asynchronous_connection_knows_the_clock_too(database: str) -> None:
    mail = ScriptedTransport(Retryable("BUSY"), None)
    async with await psycopg.AsyncConnection.connect(database) as conn:
        receipt = await redrive.aenqueue(conn, "mail", 1)
        done = await adrain(conn, scripted(mail), clock=ManualClock(), to_the_end=True)
        assert done.delivered == [receipt.id]
        with pytest.raises(redrive.UsageError, match="adrain"):
            drain(conn, scripted(mail))
        await conn.rollback()
