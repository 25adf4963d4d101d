"""With pytest-django: every test is one transaction that is rolled back, and nothing here commits."""

from smtplib import SMTPRecipientsRefused

import pytest
from django.core import mail
from django.core.management import call_command
from django.db import connection
from shop.models import Order
from shop.orders import place_order

import redrive
from redrive.testing import assert_enqueued, assert_parked


def test_an_order_enqueues_a_confirmation(client, db):
    answer = client.post("/orders", {"email": "ada@example.com", "item": "tea"})
    assert_enqueued(connection, "confirmation", answer.json(), order_by="ada@example.com")


def test_an_order_that_fails_enqueues_nothing(db, monkeypatch):
    monkeypatch.setattr(Order, "pk", property(lambda _: 1 / 0))
    with pytest.raises(ZeroDivisionError):
        place_order("ada@example.com", "tea")
    assert_enqueued(connection, "confirmation", count=0)


def test_the_confirmation_is_sent_and_noted(redrive_drain):
    order = place_order("ada@example.com", "tea")
    assert len(redrive_drain().delivered) == 1
    assert [(sent.to, sent.body) for sent in mail.outbox] == [(["ada@example.com"], "Thank you for ordering tea.")]
    order.refresh_from_db()
    assert order.confirmed_at is not None


def test_an_address_that_does_not_exist_waits_for_a_person(redrive_drain, monkeypatch):
    def refuse(_):
        raise SMTPRecipientsRefused({})

    monkeypatch.setattr("django.core.mail.EmailMessage.send", refuse)
    order = place_order("refused@example.com", "tea")
    redrive_drain()
    assert_parked(connection, "confirmation", "NO_SUCH_ADDRESS")
    order.refresh_from_db()
    assert order.confirmed_at is None


def test_a_busy_mail_server_is_tried_again(redrive_drain, redrive_script):
    place_order("ada@example.com", "tea")
    redrive_script("confirmation", redrive.Retryable("SMTP"), redrive.Delivered())
    assert len(redrive_drain(to_the_end=True).retried) == 1


def test_the_project_is_set_up(db):
    call_command("check", "--database", "default", "--fail-level", "WARNING", "--tag", "redrive", "--tag", "database")


def test_what_other_tests_did_is_gone(db):
    assert not Order.objects.exists()
    assert_enqueued(connection, "confirmation", count=0)
