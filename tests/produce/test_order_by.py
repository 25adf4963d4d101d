"""Ordering keys: numbers without gaps in the caller's transaction, whoever else enqueues, rolls back or comes again."""

from __future__ import annotations

import random
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from uuid import uuid4

import psycopg
import pytest

import redrive
from redrive.errors import InvalidValue, KeyReused
from redrive.message import NewMessage, Receipt
from redrive.produce import protocol
from tests.support.doors import Producer
from tests.support.racing import Connection, column, is_waiting, together, value
from tests.support.waiting import wait_until

pytestmark = pytest.mark.req("G-07")

KEPT = "SELECT order_by, sequence FROM redrive.message WHERE order_by IS NOT NULL ORDER BY order_by, sequence"
TOKENS = "SELECT s.order_by FROM redrive.lane_wake w JOIN redrive.stream s ON s.id = w.lane ORDER BY 1"


def numbers(receipts: list[Receipt]) -> list[int | None]:
    return [receipt.sequence for receipt in receipts]


def messages(*keys: str | None) -> list[NewMessage]:
    return [NewMessage("mail", place, order_by=key) for place, key in enumerate(keys)]


async def test_a_receipt_tells_the_number_and_the_message_keeps_it(producer: Producer) -> None:
    receipts = [await producer.enqueue("mail", 1, order_by=key) for key in ("a", "b", "a", None)]
    assert numbers(receipts) == [1, 1, 2, None]
    assert await producer.rows(KEPT) == [("a", 1), ("a", 2), ("b", 1)]
    waiting = "SELECT p.sequence FROM redrive.pending p JOIN redrive.stream s ON s.id = p.lane ORDER BY s.order_by, 1"
    assert await producer.rows(waiting) == [(1,), (2,), (1,)]


async def test_a_rollback_gives_its_numbers_back(producer: Producer) -> None:
    await producer.enqueue("mail", 1, order_by="a")
    await producer.commit()
    for key in ("a", "a", "b"):
        await producer.enqueue("mail", 1, order_by=key)
    await producer.rollback()
    assert await producer.rows(TOKENS) == [("a",)]
    assert [(await producer.enqueue("mail", 1, order_by=key)).sequence for key in ("a", "b")] == [2, 1]


async def test_a_rollback_to_a_savepoint_gives_its_numbers_back(producer: Producer) -> None:
    await producer.enqueue("mail", 1, order_by="a")
    await producer.rows("SAVEPOINT here")
    await producer.enqueue("mail", 1, order_by="a")
    await producer.rows("ROLLBACK TO SAVEPOINT here")
    assert (await producer.enqueue("mail", 1, order_by="a")).sequence == 2
    await producer.commit()
    assert await producer.rows(KEPT) == [("a", 1), ("a", 2)]


@pytest.mark.req("G-26")
async def test_a_refused_key_takes_no_number(producer: Producer) -> None:
    await producer.enqueue("mail", 1, key="k", order_by="a")
    for other in ({"payload": 2, "order_by": "a"}, {"payload": 1, "order_by": "b"}, {"payload": 1, "order_by": None}):
        with pytest.raises(KeyReused):
            await producer.enqueue("mail", key="k", **other)
    again = await producer.enqueue("mail", 1, key="k", order_by="a")
    assert (again.already_existed, again.sequence) == (True, 1)
    assert (await producer.enqueue("mail", 1, order_by="a")).sequence == 2
    assert await producer.rows("SELECT count(*) FROM redrive.stream") == [(1,)]


async def test_a_refused_value_takes_no_number(producer: Producer) -> None:
    with pytest.raises(InvalidValue):
        await producer.enqueue_many([NewMessage("mail", 1, order_by="a"), NewMessage("mail", 1, order_by="")])
    assert (await producer.enqueue("mail", 1, order_by="a")).sequence == 1


# many


@pytest.mark.parametrize("chunk", [1, 2, 10_000])
async def test_the_messages_of_a_key_are_numbered_in_the_order_of_the_call(
    producer: Producer, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "CHUNK_MESSAGES_MAX", chunk)
    await producer.enqueue("mail", 1, order_by="b")
    receipts = await producer.enqueue_many(messages("b", "a", None, "b", "a", "c", "b"))
    assert numbers(receipts) == [2, 1, None, 3, 2, 1, 4]
    stored = await producer.rows("SELECT id, order_by, sequence FROM redrive.message")
    assert {(r.id, r.sequence) for r in receipts} <= {(id, sequence) for id, _, sequence in stored}


@pytest.mark.req("G-02")
@pytest.mark.parametrize("chunk", [2, 10_000])
async def test_duplicates_in_and_before_a_call_take_no_number(
    producer: Producer, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "CHUNK_MESSAGES_MAX", chunk)
    await producer.enqueue("mail", 0, key="known", order_by="a")
    given = [("x", "a"), ("known", "a"), ("x", "a"), (None, "a"), ("y", "b"), ("y", "b"), ("z", "a")]
    receipts = await producer.enqueue_many([NewMessage("mail", 0, key=key, order_by=by) for key, by in given])
    assert numbers(receipts) == [2, 1, 2, 3, 1, 1, 4]
    assert [r.already_existed for r in receipts] == [False, True, True, False, False, True, False]


@pytest.mark.req("G-26")
@pytest.mark.parametrize("chunk", [1, 10_000])
async def test_a_call_that_is_undone_gives_all_its_numbers_back(
    producer: Producer, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "CHUNK_MESSAGES_MAX", chunk)
    await producer.enqueue("mail", 1, key="k", order_by="a")
    with pytest.raises(KeyReused):
        await producer.enqueue_many([*messages("a", "b"), NewMessage("mail", 2, key="k", order_by="a")])
    assert numbers(await producer.enqueue_many(messages("a", "b"))) == [2, 1]
    assert await producer.rows(TOKENS) == [("a",), ("a",), ("b",)]


async def test_one_call_brings_one_token_a_key_for_its_first_message(producer: Producer) -> None:
    """A token per message would only be thrown away: the first message's is enough to look at the lane."""
    given = [("bank", "a", "low"), ("mail", "b", "high"), ("mail", "a", "high"), ("mail", None, "normal")]
    await producer.enqueue_many([NewMessage(to, 1, order_by=by, priority=p) for to, by, p in given])
    tokens = "SELECT s.order_by, w.destination, w.level FROM redrive.lane_wake w JOIN redrive.stream s ON s.id = w.lane"
    assert sorted(await producer.rows(tokens)) == [("a", "bank", 2), ("b", "mail", 0)]


async def test_a_call_of_duplicates_only_touches_no_counter(producer: Producer) -> None:
    given = [NewMessage("mail", 1, key="k", order_by="a"), NewMessage("mail", 1, key="l")]
    await producer.enqueue_many(given)
    await producer.commit()
    receipts = await producer.enqueue_many(given)
    assert [(r.already_existed, r.sequence) for r in receipts] == [(True, 1), (True, None)]
    assert await producer.rows("SELECT last_sequence FROM redrive.stream") == [(1,)]
    assert await producer.rows(TOKENS) == [("a",)]


# at once


@pytest.mark.parametrize("commits", [True, False])
def test_whoever_enqueues_for_the_same_key_waits_for_the_number_and_nobody_else_does(
    database: str, commits: bool
) -> None:
    with (
        psycopg.connect(database) as first,
        psycopg.connect(database) as second,
        psycopg.connect(database, autocommit=True) as observer,
        ThreadPoolExecutor(1) as pool,
    ):
        assert redrive.enqueue(first, "mail", 1, order_by="k").sequence == 1
        waiting = pool.submit(redrive.enqueue, second, "mail", 2, order_by="k")
        wait_until(lambda: is_waiting(observer, second), seconds=20, what="the second caller to wait for the first")
        with psycopg.connect(database, options="-c lock_timeout=5s") as third:
            assert redrive.enqueue(third, "mail", 3, order_by="other").sequence == 1
            assert redrive.enqueue(third, "mail", 3, order_by="k", tenant="other").sequence == 1
        if commits:
            first.commit()
        else:
            first.rollback()
        assert waiting.result(30).sequence == (2 if commits else 1)


def test_no_relay_waits_for_a_producer_nor_a_producer_for_a_relay(database: str) -> None:
    claim = "SELECT id, attempt FROM redrive.claim_1(%s, '{mail}', '{1}', '{5}', 60)"
    impatient = "-c lock_timeout=5s"
    with (
        psycopg.connect(database, options=impatient) as producer,
        psycopg.connect(database, options=impatient) as relay,
    ):
        redrive.enqueue(producer, "mail", 1, order_by="k")
        producer.commit()
        redrive.enqueue(producer, "mail", 2, order_by="k")  # its transaction stays open
        rows = relay.execute(claim, [uuid4()]).fetchall()
        assert len(rows) == 1
        redrive.enqueue(producer, "mail", 3, order_by="k")  # while the claim's transaction is open
        relay.commit()
        producer.commit()
        assert value(relay, "SELECT count(*) FROM redrive.pending") == 2


def _produce(seed: int, connection: Connection) -> None:
    """One or many at a time, for a few keys, in sorted order; some transactions are rolled back."""
    chance = random.Random(seed)
    for _ in range(60):
        keys = sorted(chance.choices("abcde", k=3))
        with connection.transaction(force_rollback=chance.random() < 0.3):
            if chance.random() < 0.5:
                redrive.enqueue_many(connection, [NewMessage("mail", seed, order_by=key) for key in keys])
            else:
                for key in keys:
                    redrive.enqueue(connection, "mail", seed, order_by=key)


def test_many_producers_of_the_same_keys_leave_no_gap_and_no_number_twice(database: str) -> None:
    together(database, [partial(_produce, seed) for seed in range(8)])
    with psycopg.connect(database) as connection:
        found: dict[str, list[int]] = defaultdict(list)
        for key, sequence in connection.execute(KEPT.encode()).fetchall():
            found[key].append(sequence)
        assert found.keys() == set("abcde")
        for sequences in found.values():
            assert sequences == list(range(1, len(sequences) + 1))
        lanes = column(connection, "SELECT id FROM redrive.lane ORDER BY id")
        assert lanes == column(connection, "SELECT id FROM redrive.stream ORDER BY id")


def test_bulk_calls_with_the_same_keys_in_opposite_order_do_not_deadlock(database: str) -> None:
    keys = [f"k{number}" for number in range(200)]

    def call(order: list[str], connection: Connection) -> None:
        for _ in range(5):
            with connection.transaction():
                redrive.enqueue_many(connection, [NewMessage("mail", 1, order_by=key) for key in order])

    together(database, [partial(call, order) for order in (keys, keys[::-1], keys, keys[::-1])])
    with psycopg.connect(database) as connection:
        assert value(connection, "SELECT array_agg(DISTINCT last_sequence) FROM redrive.stream") == [20]


# every other language


def test_the_verb_numbers_by_name_and_in_bulk(database: str) -> None:
    def rows(query: str) -> list[Any]:
        return connection.execute(query.encode()).fetchall()

    with psycopg.connect(database) as connection:
        assert rows("SELECT result, sequence FROM redrive.enqueue_1('mail', '1', p_order_by => 'a')") == [("new", 1)]
        many = (
            "SELECT place, result, sequence FROM redrive.enqueue_many_1(ARRAY['mail', 'mail', 'bank'],"
            " ARRAY['1', '2', '3']::bytea[], NULL, ARRAY['default', 'default', 'default'], ARRAY['', '', ''],"
            " ARRAY['x', 'x', 'x'], NULL, NULL, NULL, ARRAY[1, 1, 1]::smallint[], ARRAY['a', NULL, 'a']) ORDER BY 1"
        )
        assert rows(many) == [(1, "new", 2), (2, "new", None), (3, "new", 3)]
        again = "SELECT result, sequence FROM redrive.enqueue_1('mail', '1', 'key', p_order_by => 'a')"
        assert [rows(again), rows(again)] == [[("new", 4)], [("duplicate", 4)]]


def test_the_producers_role_may_enqueue_in_order_and_see_no_counter(database: str) -> None:
    with psycopg.connect(database) as connection:
        connection.execute("SET ROLE redrive_producer")
        assert redrive.enqueue(connection, "mail", 1, order_by="a").sequence == 1
        assert numbers(redrive.enqueue_many(connection, messages("a", "b"))) == [2, 1]
        for table in ("stream", "lane", "lane_wake"):
            with (
                pytest.raises(psycopg.errors.InsufficientPrivilege),
                connection.transaction(),
            ):
                connection.execute(f"SELECT * FROM redrive.{table}".encode())
