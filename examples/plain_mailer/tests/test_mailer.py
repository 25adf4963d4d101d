"""In a transaction that is rolled back, and once with processes of their own."""

import signal
import subprocess
import sys
import time

import psycopg
import pytest
from mailer import mails, sign_up

import redrive
from redrive.testing import assert_enqueued

REDRIVE = [sys.executable, "-m", "redrive"]


@pytest.fixture(scope="session")
def schema():
    subprocess.run([*REDRIVE, "db", "upgrade"], check=True)


@pytest.fixture(autouse=True)
def maildir(tmp_path, monkeypatch):
    monkeypatch.setenv("MAILDIR", str(tmp_path / "mails"))


@pytest.fixture
def redrive_connection(schema):
    with psycopg.connect("") as conn:
        conn.execute("CREATE TABLE IF NOT EXISTS users (email text PRIMARY KEY)")
        yield conn
        conn.rollback()


def test_who_signs_up_gets_a_mail(redrive_connection, redrive_drain):
    sign_up(redrive_connection, "ada@example.com")
    assert_enqueued(redrive_connection, "welcome", {"to": "ada@example.com"})
    redrive_drain()
    assert [mail["To"] for mail in mails()] == ["ada@example.com"]


def test_in_doubt_the_mailbox_is_asked_before_a_second_mail_is_sent(redrive_connection, redrive_app, redrive_drain):
    """The mail was sent, the answer was lost."""
    sign_up(redrive_connection, "bob@example.com")
    transport = redrive_app.destinations["welcome"].transport
    send, answers = transport.send, iter([redrive.Unknown("LOST")])

    async def lose_the_first_answer(message):
        answer = await send(message)
        return next(answers, answer)

    transport.send = lose_the_first_answer
    try:
        assert len(redrive_drain(to_the_end=True).delivered) == 1
    finally:
        transport.send = send
    assert len(mails()) == 1


def test_a_relay_delivers_what_was_committed(schema):
    relay = subprocess.Popen([*REDRIVE, "relay", "mailer:app"])
    try:
        subprocess.run([sys.executable, "sign_up.py", "cora@example.com"], check=True)
        deadline = time.monotonic() + 30
        while not len(mails()):
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        relay.send_signal(signal.SIGTERM)
    assert relay.wait(30) == 0
