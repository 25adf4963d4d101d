"""A shop that takes orders. Each order is a row of its own table and messages in the same transaction.

`warehouse` is healthy. `mail` is sometimes busy, and sometimes it sends but the reply is lost; since it can be asked
(`lookup`), no mail goes out twice. `partner` is down. Ledgers are files outside the engine: the judge of `--once`.
"""

import json
import os
from pathlib import Path
from random import Random, choice
from typing import Any

import psycopg

import redrive

LEDGER_VARIABLE = "REDRIVE_DEMO_LEDGER"
PARTNER_EVERY = 4  # every fourth order is also reported to the partner

SOON = redrive.Backoff(initial_seconds=0.3, multiplier=2, max_seconds=2, jitter="full")
app = redrive.App()


class Ledger:
    """What one destination has really done, synced before it answers."""

    def __init__(self, name: str) -> None:
        self._path = Path(os.environ.get(LEDGER_VARIABLE, ".")) / f"{name}.ledger"

    def write(self, message: redrive.Attempt) -> None:
        line = json.dumps({"token": message.token, "order": message.payload["order"]}) + "\n"
        with self._path.open("a", encoding="utf-8") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())

    def entries(self) -> list[dict[str, Any]]:
        if not self._path.exists():
            return []
        return [json.loads(line) for line in self._path.read_text(encoding="utf-8").splitlines()]

    def has(self, token: str) -> bool:
        return any(entry["token"] == token for entry in self.entries())


@app.destination("warehouse")
async def warehouse(order: redrive.Attempt) -> None:
    Ledger("warehouse").write(order)


async def was_mailed(order: redrive.Attempt) -> redrive.Found | redrive.Absent:
    return redrive.Found() if Ledger("mail").has(order.token) else redrive.Absent()


@app.destination("mail", policy=redrive.Policy(attempts=20, backoff=SOON), lookup=was_mailed)
async def mail(order: redrive.Attempt) -> None:
    luck = Random(f"{order.token}/{order.number}").random()
    if luck < 0.35:
        raise redrive.Retryable("MAILBOX_BUSY", "The mail server asks to come back later")
    Ledger("mail").write(order)
    if luck < 0.55:
        raise redrive.Unknown("REPLY_LOST", "The mail went out and the answer was lost")


@app.destination("partner", policy=redrive.Policy(attempts=4, backoff=SOON))
async def partner(_: redrive.Attempt) -> None:
    raise ConnectionRefusedError  # as a client library does when the port is closed


SCHEMA = """
CREATE SCHEMA IF NOT EXISTS shop;
CREATE TABLE IF NOT EXISTS shop.orders (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    item      text NOT NULL,
    placed_at timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE IF NOT EXISTS shop.order_messages (
    order_id   bigint NOT NULL REFERENCES shop.orders,
    message_id uuid NOT NULL
);
"""
ITEMS = ("teapot", "lamp", "globe", "kite", "clock", "umbrella")


async def place_order(conn: psycopg.AsyncConnection[Any]) -> int:
    """One transaction: the order, and everything that must happen because of it. All of it, or nothing."""
    async with conn.transaction():
        cursor = await conn.execute("INSERT INTO shop.orders (item) VALUES (%s) RETURNING id", [choice(ITEMS)])
        row = await cursor.fetchone()
        assert row is not None
        order: int = row[0]
        destinations = ["warehouse", "mail"] + (["partner"] if order % PARTNER_EVERY == 0 else [])
        for destination in destinations:
            receipt = await redrive.aenqueue(conn, destination, {"order": order}, key=f"{destination}:{order}")
            insert = "INSERT INTO shop.order_messages (order_id, message_id) VALUES (%s, %s)"
            await conn.execute(insert, [order, receipt.id])
    return order
