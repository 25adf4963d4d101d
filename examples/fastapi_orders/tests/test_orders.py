"""What is enqueued, what happens then, and once the whole with a relay."""

import time

from fastapi.testclient import TestClient
from orders.database import Order
from orders.main import app
from sqlalchemy import select, text

from redrive.testing import assert_enqueued

TEA = {"email": "ada@example.com", "item": "tea"}


def test_an_order_enqueues_a_receipt(client, redrive_connection):
    placed = client.post("/orders", json=TEA).json()
    assert_enqueued(redrive_connection, "receipt", {"order": placed["id"], **TEA})
    assert client.get(f"/orders/{placed['id']}/receipt").json() == {"state": "pending"}


def test_the_receipt_is_written(client, redrive_drain, receipts):
    placed = client.post("/orders", json=TEA).json()
    assert len(redrive_drain().delivered) == 1
    assert [file.read_text() for file in receipts.iterdir()] == ["tea for ada@example.com\n"]
    assert client.get(f"/orders/{placed['id']}/receipt").json() == {"state": "delivered"}


def test_what_other_tests_did_is_gone(redrive_connection):
    assert redrive_connection.scalars(select(Order)).all() == []
    assert redrive_connection.scalar(text("SELECT count(*) FROM redrive.messages WHERE state = 'pending'")) == 0


def test_with_its_lifespan_the_application_delivers_by_itself(schema, receipts, cleared):
    with TestClient(app) as client:
        placed = client.post("/orders", json=TEA).json()
        deadline = time.monotonic() + 20
        while client.get(f"/orders/{placed['id']}/receipt").json() != {"state": "delivered"}:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    assert len(list(receipts.iterdir())) == 1
