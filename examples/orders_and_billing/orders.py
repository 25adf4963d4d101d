"""The service that takes orders. An order and its event `order.placed` are one transaction."""

import os

import psycopg

import redrive
from redrive.sources.nats import NatsSource
from redrive.transports.nats import CloudEvents, NatsTransport

SCHEMA = """
CREATE TABLE IF NOT EXISTS orders (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer text NOT NULL,
    cents    integer NOT NULL,
    invoice  bigint -- the number that billing gave it
)
"""

app = redrive.App()
app.transport(
    "orders",
    NatsTransport(os.environ["NATS_URL"], subject="orders.{order_by}", cloudevents=CloudEvents("/orders")),
    concurrency=100,
)


def place_order(conn: psycopg.Connection, customer: str, cents: int) -> int:
    with conn.transaction():
        insert = "INSERT INTO orders (customer, cents) VALUES (%s, %s) RETURNING id"
        (order,) = conn.execute(insert, [customer, cents]).fetchone()
        event = {"order": order, "customer": customer, "cents": cents}
        redrive.enqueue(conn, "orders", event, kind="order.placed", order_by=customer, key=f"order:{order}")
    return order


def invoices() -> NatsSource:
    return NatsSource(os.environ["NATS_URL"], stream="INVOICES", durable="orders", ack_wait_seconds=10)


@app.consumer("invoiced", source=invoices, types={"invoice.issued"}, order="subject")
async def invoiced(conn: psycopg.AsyncConnection, event: redrive.Event) -> None:
    number, order = event.data["invoice"], event.data["order"]
    await conn.execute("UPDATE orders SET invoice = %s WHERE id = %s", [number, order])
