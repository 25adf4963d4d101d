"""Many callers at once: one row a key, no caller aborted, no deadlock between bulk calls (G-02, G-03, ruling 18)."""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
import pytest

import redrive
from redrive.message import NewMessage, Receipt
from redrive.produce import protocol
from tests.support.racing import Connection, column, is_waiting, together, value
from tests.support.waiting import wait_until

CONNECTIONS = 32
ENQUEUES = 20_000
KEYS = 500
KEYS_PER_TRANSACTION = 5
ROLLED_BACK = 0.2


class Enqueued(NamedTuple):
    key: str
    receipt: Receipt
    committed: bool


def produce(seed: int, connection: Connection) -> list[Enqueued]:
    """One caller's share, in transactions of a few keys each, taken in order; some are rolled back."""
    chance = random.Random(seed)
    done: list[Enqueued] = []
    for _ in range(ENQUEUES // CONNECTIONS // KEYS_PER_TRANSACTION):
        keys = sorted(f"k{chance.randrange(KEYS)}" for _ in range(KEYS_PER_TRANSACTION))
        commits = chance.random() >= ROLLED_BACK
        with connection.transaction(force_rollback=not commits):
            done += [Enqueued(k, redrive.enqueue(connection, "mail", {"key": k}, key=k), commits) for k in keys]
    return done


@pytest.mark.req("G-02")
@pytest.mark.req("G-03")
@pytest.mark.timeout(240)
def test_of_twenty_thousand_enqueues_of_five_hundred_keys_one_row_a_key_remains(database: str) -> None:
    results = together(database, [partial(produce, seed) for seed in range(CONNECTIONS)])  # raises if any caller aborts
    done = [enqueued for result in results for enqueued in result]
    assert len(done) == ENQUEUES
    committed: dict[str, list[Receipt]] = defaultdict(list)
    for key, receipt, commits in done:
        if commits:
            committed[key].append(receipt)
    with psycopg.connect(database) as connection:
        stored: dict[str, UUID] = dict(connection.execute("SELECT key, id FROM redrive.message").fetchall())
        assert value(connection, "SELECT count(*) FROM redrive.message") == len(stored) == len(committed) <= KEYS
        assert set(column(connection, "SELECT message_id FROM redrive.idempotency")) == set(stored.values())
        assert set(column(connection, "SELECT id FROM redrive.pending")) == set(stored.values())
    for key, receipts in committed.items():
        assert {receipt.id for receipt in receipts} == {stored[key]}
        assert sum(not receipt.already_existed for receipt in receipts) == 1
    assert any(not e.committed and not e.receipt.already_existed for e in done)  # a first one was rolled back


@pytest.mark.req("G-03")
@pytest.mark.parametrize("first_commits", [True, False])
def test_a_duplicate_waits_for_the_first_and_then_knows(database: str, first_commits: bool) -> None:
    with (
        psycopg.connect(database) as first,
        psycopg.connect(database) as second,
        psycopg.connect(database, autocommit=True) as observer,
        ThreadPoolExecutor(1) as pool,
    ):
        one = redrive.enqueue(first, "mail", 1, key="k")
        waiting = pool.submit(redrive.enqueue, second, "mail", 1, key="k")
        wait_until(lambda: is_waiting(observer, second), seconds=20, what="the second caller to wait for the first")
        end = first.commit if first_commits else first.rollback
        end()
        two = waiting.result(20)
        assert two.already_existed == first_commits
        assert (two.id == one.id) == first_commits
        second.execute("SELECT 1")
        second.commit()
        assert value(observer, "SELECT count(*) FROM redrive.message") == 1


def bulk(keys: list[str], rounds: int, barrier: threading.Barrier, streams: int, connection: Connection) -> None:
    """Every key, with a tenant and an ordering key that it always has."""
    for number in range(rounds):
        barrier.wait(60)
        messages = [
            NewMessage(
                "mail",
                1,
                key=f"{number}:{key}",
                tenant=f"t{len(key)}",
                order_by=f"s{sum(key.encode()) % streams}" if streams else None,
            )
            for key in keys
        ]
        with connection.transaction():
            redrive.enqueue_many(connection, messages)


@pytest.mark.req("G-03")
@pytest.mark.parametrize("streams", [0, 4], ids=["unordered", "ordered"])
@pytest.mark.parametrize("chunk", [10_000, 60])
def test_bulk_calls_in_opposite_order_do_not_deadlock(
    database: str, chunk: int, streams: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many statements a call is cut into; the third call is of one statement in any case."""
    monkeypatch.setattr(protocol, "CHUNK_MESSAGES_MAX", chunk)
    keys = [f"{'k' * (1 + n % 3)}{n}" for n in range(200)]
    barrier = threading.Barrier(3)
    calls: list[Any] = [partial(bulk, order, 10, barrier, streams) for order in (keys, keys[::-1], keys[100:40:-1])]
    together(database, calls)
    with psycopg.connect(database) as connection:
        assert value(connection, "SELECT count(*) FROM redrive.message") == 10 * len(keys)


@pytest.mark.full
@pytest.mark.req("G-03")
def test_two_calls_of_twenty_thousand_in_opposite_order_do_not_deadlock(database: str) -> None:
    keys = [f"{'k' * (1 + n % 3)}{n}" for n in range(20_000)]
    barrier = threading.Barrier(2)
    together(database, [partial(bulk, order, 3, barrier, 50) for order in (keys, keys[::-1])])
    with psycopg.connect(database) as connection:
        assert value(connection, "SELECT count(*) FROM redrive.message") == 3 * len(keys)


@pytest.mark.req("G-02")
@pytest.mark.parametrize("chunk", [1, 2, 10_000])
def test_the_first_position_of_a_key_wins_over_the_whole_call(
    database: str, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although the second one belongs to an ordering key that is taken earlier. Receipts are in the caller's order."""
    monkeypatch.setattr(protocol, "CHUNK_MESSAGES_MAX", chunk)
    messages = [
        NewMessage("mail", 1, key="a", order_by="z"),
        NewMessage("mail", 2, order_by="b"),
        NewMessage("mail", 3, key="a", order_by="b", on_other_payload="first_wins"),
        NewMessage("mail", 4, order_by="z"),
        NewMessage("mail", 1, key="a", order_by="z"),
    ]
    with psycopg.connect(database) as connection:
        receipts = redrive.enqueue_many(connection, messages)
        assert [receipt.already_existed for receipt in receipts] == [False, False, True, False, True]
        assert receipts[0].id == receipts[2].id == receipts[4].id
        assert [receipt.sequence for receipt in receipts] == [1, 1, 1, 2, 1]
        bodies = column(connection, "SELECT convert_from(body, 'utf8') FROM redrive.message ORDER BY body")
    assert bodies == ["1", "2", "4"]


@pytest.mark.req("G-02")
def test_bulk_calls_of_the_same_keys_at_once_leave_one_row_a_key(database: str) -> None:
    messages = [NewMessage("mail", n, key=f"k{n}") for n in range(300)]

    def call(connection: Connection) -> list[Receipt]:
        with connection.transaction():
            return redrive.enqueue_many(connection, random.Random(id(connection)).sample(messages, 300))

    results = together(database, [call] * 6)
    receipts = [receipt for result in results for receipt in result]
    assert len({r.id for r in receipts}) == sum(not r.already_existed for r in receipts) == 300
    with psycopg.connect(database) as connection:
        assert value(connection, "SELECT count(*) FROM redrive.pending") == 300
