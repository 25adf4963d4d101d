"""The same with Django's own TestCase."""

from django.core import mail
from django.db import connection
from django.test import TestCase
from shop.orders import place_order
from shop.outbox import app

from redrive.testing import assert_enqueued, drain


class Orders(TestCase):
    def test_an_order_is_confirmed(self) -> None:
        place_order("ada@example.com", "tea")
        assert_enqueued(connection, "confirmation")
        self.assertEqual(len(drain(connection, app).delivered), 1)
        self.assertEqual(mail.outbox[0].to, ["ada@example.com"])
