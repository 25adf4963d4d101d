"""A producer process of a proof: business rows and messages in one transaction.

    python -m redrive.prove.producer LOG   with its settings as JSON on standard input, the database in REDRIVE_DSN

The intent is on disk before BEGIN and the acknowledgement after COMMIT, so the checker knows what was promised:
acknowledged must be there, never intended must not.
"""

import contextlib
import hashlib
import json
import os
import random
import sys
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

import redrive
from redrive.kit.proof.journal import Journal

TENANT = "proof"
ROLLBACK_SHARE = 0.08
DUPLICATE_SHARE = 0.10
RECONNECT_SECONDS = 0.2
ROOM_SECONDS = 0.02


@dataclass(frozen=True, kw_only=True)
class Order:
    """name: unique per process, part of every key. pause_seconds: after every `burst` messages; uneven: of any
    length up to it. plain: no rollbacks and no duplicates. payload: in every body besides its number. keys: every
    second message has one, with `all_ordered` every message, never one for a destination of `unordered`. in_a_row:
    messages of a key that follow each other. pending_max: with more it waits after a burst."""

    name: str
    count: int
    destinations: list[str]
    seed: int = 0
    pause_seconds: float = 0.0
    uneven: bool = False
    burst: int = 1
    plain: bool = False
    payload: dict[str, Any] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)
    all_ordered: bool = False
    unordered: list[str] = field(default_factory=list)
    in_a_row: int = 1
    pending_max: int | None = None

    def ordering_key(self, number: int, destination: str) -> str | None:
        """From the number alone: the same key always has the same content."""
        if not self.keys or destination in self.unordered:
            return None
        drawn = zlib.crc32(f"{self.name}/{number // self.in_a_row}".encode())
        return self.keys[drawn // 2 % len(self.keys)] if drawn % 2 or self.all_ordered else None


def produce(dsn: str, log: Path, order: Order, *, durable: bool = True) -> None:
    """A lost connection is made again, and what was under way stays unknown."""
    journal = Journal(log, durable=durable)
    chance = random.Random(f"{order.seed}/{order.name}")
    number = 0
    while number < order.count:
        with contextlib.suppress(psycopg.OperationalError), psycopg.connect(dsn) as conn:
            while number < order.count:
                number += 1  # before anything can fail: what was under way is not tried again
                _one(conn, journal, order, number - 1, chance)
                if number % order.burst == 0:
                    _pause(conn, order, chance)
        time.sleep(RECONNECT_SECONDS if number < order.count else 0.0)
    journal.write(log="finished", producer=order.name)
    journal.close()


def _pause(conn: psycopg.Connection[Any], order: Order, chance: random.Random) -> None:
    time.sleep(chance.uniform(0.0, order.pause_seconds) if order.uneven else order.pause_seconds)
    while order.pending_max is not None and _pending(conn) > order.pending_max:
        time.sleep(ROOM_SECONDS)


def _pending(conn: psycopg.Connection[Any]) -> int:
    row = conn.execute("SELECT count(*) FROM redrive.pending").fetchone()
    conn.rollback()
    assert row
    return int(row[0])


def _one(conn: psycopg.Connection[Any], journal: Journal, order: Order, number: int, chance: random.Random) -> None:
    again = number > 0 and not order.plain and chance.random() < DUPLICATE_SHARE
    number = chance.randrange(number) if again else number
    rolls_back = not order.plain and chance.random() < ROLLBACK_SHARE
    key = f"{order.name}/{number}"
    # From the number alone: the same key always has the same content.
    destination = order.destinations[number % len(order.destinations)]
    order_by = order.ordering_key(number, destination)
    body = json.dumps({**order.payload, "number": number, "by": order.name}).encode()
    sha256 = hashlib.sha256(body).hexdigest()
    intent = {"tenant": TENANT, "key": key, "destination": destination, "sha256": sha256, "order_by": order_by}
    journal.write(log="intent", **intent)
    receipt = _enqueue(conn, intent, body)
    if rolls_back:
        conn.rollback()
        journal.write(log="rolled_back", **intent)
    else:
        conn.commit()
        journal.write(log="ack", **intent, id=str(receipt.id), existed=receipt.already_existed)


def _enqueue(conn: psycopg.Connection[Any], intent: Mapping[str, Any], body: bytes) -> redrive.Receipt:
    conn.execute(
        "INSERT INTO redrive_prove.business (tenant, key, destination, sha256) VALUES (%(tenant)s, %(key)s,"
        " %(destination)s, %(sha256)s) ON CONFLICT DO NOTHING",
        intent,
    )
    return redrive.enqueue(
        conn,
        intent["destination"],
        body,
        key=intent["key"],
        tenant=intent["tenant"],
        order_by=intent["order_by"],
        content_type="application/json",
    )


if __name__ == "__main__":
    produce(os.environ["REDRIVE_DSN"], Path(sys.argv[1]), Order(**json.loads(sys.stdin.read())))
