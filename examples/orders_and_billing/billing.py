"""The service that writes invoices. It has a database of its own, and knows orders only by their events."""

import os

import psycopg

import redrive
from redrive.sources.nats import NatsSource
from redrive.transports.nats import CloudEvents, NatsTransport

# Nothing here keeps a second invoice of an order away: the inbox does.
SCHEMA = """
CREATE TABLE IF NOT EXISTS invoices (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    order_id bigint NOT NULL,
    customer text NOT NULL,
    cents    integer NOT NULL
)
"""

app = redrive.App()
app.transport(
    "invoices",
    NatsTransport(os.environ["NATS_URL"], subject="invoices.{order_by}", cloudevents=CloudEvents("/billing")),
    concurrency=100,
)


def orders() -> NatsSource:
    return NatsSource(os.environ["NATS_URL"], stream="ORDERS", durable="billing", ack_wait_seconds=10)


@app.consumer("billing", source=orders, types={"order.placed"}, order="subject")
async def bill(conn: psycopg.AsyncConnection, event: redrive.Event) -> None:
    """The invoice, the event about it and the inbox row are one transaction."""
    order = event.data
    insert = "INSERT INTO invoices (order_id, customer, cents) VALUES (%s, %s, %s) RETURNING id"
    row = await (await conn.execute(insert, [order["order"], order["customer"], order["cents"]])).fetchone()
    issued = {"invoice": row[0], "order": order["order"]}
    await redrive.aenqueue(conn, "invoices", issued, kind="invoice.issued", order_by=order["customer"])
