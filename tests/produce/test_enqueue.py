"""A message commits and rolls back with the caller's own data, and is stored as it was handed in (G-01)."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import psycopg
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

import redrive
from redrive.message import Priority
from redrive.store.runtime.postgres import PostgresStore
from tests.support import messages as m
from tests.support.doors import Producer

CHARACTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    SCALARS | st.text(CHARACTERS),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(CHARACTERS), inner, max_size=4),
    max_leaves=8,
)


async def stored(producer: Producer) -> list[Any]:
    """What another connection sees: destination and payload of every message that waits."""
    query = b"SELECT destination, body FROM redrive.message JOIN redrive.pending USING (id, destination) ORDER BY id"
    async with await psycopg.AsyncConnection.connect(producer.dsn) as other:
        return await (await other.execute(query)).fetchall()


@pytest.mark.req("G-01")
async def test_the_message_is_seen_by_others_when_the_caller_commits(producer: Producer) -> None:
    receipt = await producer.enqueue("mail", {"to": "a"})
    assert isinstance(receipt.id, UUID)
    assert (receipt.already_existed, receipt.sequence, receipt.state) == (False, None, "pending")
    assert await stored(producer) == []
    await producer.commit()
    assert await stored(producer) == [("mail", b'{"to":"a"}')]


@pytest.mark.req("G-01")
async def test_the_message_is_gone_when_the_caller_rolls_back(producer: Producer) -> None:
    await producer.enqueue("mail", 1, key="k")
    await producer.rollback()
    assert await stored(producer) == []
    assert not (await producer.enqueue("mail", 2, key="k")).already_existed


@pytest.mark.req("G-01")
async def test_the_message_is_gone_with_the_savepoint_it_was_enqueued_in(producer: Producer) -> None:
    await producer.enqueue("mail", "before", key="before")
    await producer.rows("SAVEPOINT mine")
    await producer.enqueue("mail", "inside", key="inside")
    await producer.enqueue_many([redrive.NewMessage("mail", "inside too", key="inside too")])
    await producer.rows("ROLLBACK TO SAVEPOINT mine")
    await producer.enqueue("mail", "after", key="inside")
    await producer.commit()
    assert [body for _, body in await stored(producer)] == [b'"before"', b'"after"']


@pytest.mark.req("G-01")
async def test_the_callers_rows_and_the_message_commit_together(producer: Producer) -> None:
    await producer.rows("CREATE TABLE orders (id int PRIMARY KEY)")
    await producer.commit()
    await producer.rows("INSERT INTO orders VALUES (1)")
    await producer.enqueue("mail", 1)
    with pytest.raises(psycopg.errors.UniqueViolation):
        await producer.rows("INSERT INTO orders VALUES (1)")
    await producer.rollback()
    assert await stored(producer) == []
    assert await producer.rows("SELECT * FROM orders") == []


async def test_everything_that_was_said_is_kept(producer: Producer, store: PostgresStore) -> None:
    receipt = await producer.enqueue(
        m.DESTINATION,
        {"b": 1, "a": "ü"},
        key="ключ",
        tenant="acme",
        kind="order.placed",
        priority=Priority.HIGH,
        headers={"traceparent": "00-1", "x-y": "ü"},
        content_type="application/vnd.shop+json",
    )
    await producer.commit()
    taken = await m.claim(store)
    assert taken.id == receipt.id
    assert (taken.body, taken.payload) == ('{"a":"ü","b":1}'.encode(), {"b": 1, "a": "ü"})
    assert (taken.key, taken.tenant, taken.kind) == ("ключ", "acme", "order.placed")
    assert taken.headers == {"traceparent": "00-1", "x-y": "ü"}
    assert taken.content_type == "application/vnd.shop+json"
    assert await producer.rows("SELECT level FROM redrive.message") == [(0,)]


async def test_the_priority_decides_the_level(producer: Producer) -> None:
    priorities: list[Any] = ["high", "normal", "low", Priority.LOW]
    for priority in priorities:
        await producer.enqueue("mail", 1, priority=priority)
    rows = await producer.rows(
        "SELECT m.level, p.level FROM redrive.message m JOIN redrive.pending p USING (id) ORDER BY 1"
    )
    assert rows == [(0, 0), (1, 1), (2, 2), (2, 2)]


async def test_bytes_in_are_bytes_out(producer: Producer, store: PostgresStore) -> None:
    raw = bytes(range(256)) * 3
    await producer.enqueue(m.DESTINATION, raw)
    await producer.commit()
    taken = await m.claim(store)
    assert (taken.body, taken.content_type) == (raw, "application/octet-stream")


async def test_the_largest_payload_key_and_names_are_stored_whole(producer: Producer) -> None:
    names = {"tenant": "ü" * 100, "kind": "k" * 100, "key": "\U0001f680" * 1000, "content_type": "x" * 100}
    headers = {f"h{n}": "v" * 100 for n in range(50)}
    await producer.enqueue("d" * 100, b"\0" * 262_144, **names, headers=headers)
    columns = "destination, tenant, kind, key, content_type, headers, octet_length(body)"
    assert await producer.rows(f"SELECT {columns} FROM redrive.message") == [
        ("d" * 100, names["tenant"], names["kind"], names["key"], names["content_type"], headers, 262_144)
    ]


def test_any_json_comes_back_as_it_went_in(database: str) -> None:
    with psycopg.connect(database) as connection:

        @hypothesis_settings(max_examples=60, deadline=None)
        @given(VALUES, st.dictionaries(st.text(CHARACTERS, min_size=1), st.text(CHARACTERS), max_size=3))
        def round_trip(value: Any, tags: dict[str, str]) -> None:
            printable = {k: v for k, v in tags.items() if k.isprintable() and v.isprintable()}
            receipt = redrive.enqueue(connection, "mail", value, headers=printable)
            query = "SELECT body, headers::text FROM redrive.message WHERE id = %s"
            row = connection.execute(query, [receipt.id]).fetchone()
            assert row is not None
            assert json.loads(row[0]) == value
            assert json.loads(row[1] or "{}") == printable

        round_trip()


async def test_a_transaction_can_hold_many_enqueues_between_its_own_statements(producer: Producer) -> None:
    ids = [(await producer.enqueue("mail", n, key=f"k{n % 5}", on_other_payload="first_wins")).id for n in range(15)]
    await producer.rows("SELECT 1")
    await producer.commit()
    assert len(set(ids)) == 5
    assert ids[:5] == ids[5:10] == ids[10:]
    assert len(await stored(producer)) == 5
