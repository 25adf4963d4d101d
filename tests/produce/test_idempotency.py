"""A key is unique for good; a duplicate is a success that changes nothing and aborts nobody (G-02, G-03, G-26)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
import pytest

from redrive.errors import KeyReused
from redrive.message import MessageId, NewMessage, ParkReason
from redrive.store.runtime.postgres import PostgresStore
from tests.support import messages as m
from tests.support.doors import Producer

PAYLOAD = {"to": "a"}
EXPIRES_AT = m.at(500)
Journey = Callable[[PostgresStore, MessageId], Awaitable[None]]


async def stay(store: PostgresStore, message: MessageId) -> None:
    """Nothing happens to it."""


async def lease(store: PostgresStore, message: MessageId) -> None:
    await m.claim(store)


async def deliver(store: PostgresStore, message: MessageId) -> None:
    await m.settle(store, await m.claim(store), m.close())


async def cancel(store: PostgresStore, message: MessageId) -> None:
    await store.cancel(message)


async def expire(store: PostgresStore, message: MessageId) -> None:
    assert await store.expire(limit=10, now=EXPIRES_AT) == 1


def park(reason: ParkReason) -> Journey:
    async def journey(store: PostgresStore, message: MessageId) -> None:
        await m.settle(store, await m.claim(store), m.park(reason))

    return journey


async def discard(store: PostgresStore, message: MessageId) -> None:
    await park(ParkReason.DEAD)(store, message)
    await store.discard(message, actor="ada", reason="not needed")


JOURNEYS: dict[str, tuple[Journey, str]] = {
    "pending": (stay, "pending"),
    "leased": (lease, "leased"),
    "dead": (park(ParkReason.DEAD), "parked"),
    "held": (park(ParkReason.HELD), "parked"),
    "unrecorded": (park(ParkReason.UNRECORDED), "parked"),
    "delivered": (deliver, "delivered"),
    "cancelled": (cancel, "cancelled"),
    "expired": (expire, "expired"),
    "discarded": (discard, "discarded"),
}

TABLES = ("message", "pending", "lease", "parked", "attempt", "idempotency")


async def contents(producer: Producer) -> list[Any]:
    """Every row of every table that an enqueue could touch, with its row version."""
    queries = [f"SELECT '{table}', ctid::text, xmin::text, t::text FROM redrive.{table} t" for table in TABLES]
    return sorted(await producer.rows(" UNION ALL ".join(queries)))


async def has_transaction_id(producer: Producer) -> bool:
    return bool((await producer.rows("SELECT pg_current_xact_id_if_assigned() IS NOT NULL"))[0][0])


@pytest.mark.req("G-02")
@pytest.mark.req("G-03")
@pytest.mark.parametrize("journey", JOURNEYS)
async def test_a_duplicate_gives_the_first_message_in_whatever_state_it_is(
    producer: Producer, store: PostgresStore, journey: str
) -> None:
    travel, state = JOURNEYS[journey]
    values = {"key": "k", "expires_at": EXPIRES_AT}
    first = await producer.enqueue(m.DESTINATION, PAYLOAD, **values)
    await producer.commit()
    await travel(store, first.id)
    before = await contents(producer)

    again = await producer.enqueue(m.DESTINATION, PAYLOAD, **values)
    (in_bulk,) = await producer.enqueue_many(
        [NewMessage(m.DESTINATION, PAYLOAD, key="k", on_other_payload="first_wins")]
    )
    assert not await has_transaction_id(producer)  # nothing was written, nothing burnt
    for receipt in (again, in_bulk):
        assert (receipt.id, receipt.already_existed, receipt.state) == (first.id, True, state)
    with pytest.raises(KeyReused):
        await producer.enqueue(m.DESTINATION, {"to": "b"}, key="k")
    assert not await has_transaction_id(producer)
    await producer.commit()
    assert await contents(producer) == before


@pytest.mark.req("G-02")
async def test_after_retirement_of_its_history_a_duplicate_is_just_closed(producer: Producer) -> None:
    first = await producer.enqueue("mail", 1, key="k")
    await producer.rows("ALTER TABLE redrive.message DISABLE TRIGGER USER")
    await producer.rows("DELETE FROM redrive.pending")
    await producer.rows("DELETE FROM redrive.message")
    again = await producer.enqueue("mail", 1, key="k")
    assert (again.id, again.already_existed, again.state) == (first.id, True, "closed")


@pytest.mark.req("G-02")
async def test_the_same_key_of_another_tenant_is_another_key(producer: Producer) -> None:
    first = await producer.enqueue("mail", 1, key="k", tenant="a")
    other = await producer.enqueue("mail", 2, key="k", tenant="b")
    assert not other.already_existed
    assert other.id != first.id


@pytest.mark.req("G-02")
async def test_keys_that_differ_only_at_the_end_of_their_length_are_two(producer: Producer) -> None:
    ids = {
        (await producer.enqueue("mail", 1, key=key)).id for key in ("x" * 999, "x" * 1000, "x" * 999 + "X", " ", "  ")
    }
    assert len(ids) == 5


async def test_without_a_key_nothing_is_deduplicated(producer: Producer) -> None:
    assert (await producer.enqueue("mail", 1)).id != (await producer.enqueue("mail", 1)).id
    assert await producer.rows("SELECT count(*) FROM redrive.idempotency") == [(0,)]


SAME: tuple[dict[str, Any], ...] = (
    {},
    {"payload": {"b": [1.0], "a": 1}},
    {"payload": b'{"a":1,"b":[1.0]}'},
    {"headers": {"x": "y"}},
    {"priority": "low"},
    {"due_at": m.at(1)},
)
OTHER: tuple[dict[str, Any], ...] = (
    {"payload": {"a": 1, "b": [1]}},
    {"payload": {"a": "1", "b": [1.0]}},
    {"payload": b'{"a":1, "b":[1.0]}'},
    {"destination": "mail2"},
    {"kind": "k"},
)


@pytest.mark.req("G-26")
async def test_destination_kind_and_payload_make_two_messages_of_one_key_the_same(producer: Producer) -> None:
    given: dict[str, Any] = {"destination": "mail", "payload": {"a": 1, "b": [1.0]}, "key": "k"}
    first = await producer.enqueue(**given)
    for change in SAME:
        assert (await producer.enqueue(**given | change)).id == first.id, change
    for change in OTHER:
        with pytest.raises(KeyReused):
            await producer.enqueue(**given | change)


@pytest.mark.req("G-26")
async def test_names_cannot_run_together_into_the_same_fingerprint(producer: Producer) -> None:
    await producer.enqueue("ab", b"x", key="k", kind="c")
    for destination, kind, body in [("a", "bc", b"x"), ("ab", "", b"cx"), ("ab", "cx", b"")]:
        with pytest.raises(KeyReused):
            await producer.enqueue(destination, body, key="k", kind=kind)


@pytest.mark.req("G-03")
@pytest.mark.req("G-26")
async def test_a_reused_key_names_the_first_message_and_leaves_the_transaction_usable(producer: Producer) -> None:
    first = await producer.enqueue("mail", {"card": "4111"}, key="order:1")
    with pytest.raises(KeyReused) as refused:
        await producer.enqueue("mail", {"card": "4222"}, key="order:1")
    text = str(refused.value)
    assert "'order:1'" in text
    assert str(first.id) in text
    assert "4111" not in text
    assert "4222" not in text
    await producer.enqueue("mail", 3, key="order:2")
    await producer.commit()
    assert await producer.rows("SELECT key FROM redrive.message ORDER BY id") == [("order:1",), ("order:2",)]


@pytest.mark.req("G-26")
async def test_first_wins_gives_the_first_message_instead(producer: Producer) -> None:
    first = await producer.enqueue("mail", 1, key="k")
    again = await producer.enqueue("mail", 2, key="k", on_other_payload="first_wins")
    assert (again.id, again.already_existed) == (first.id, True)
    assert await producer.rows("SELECT body FROM redrive.message") == [(b"1",)]


@pytest.mark.req("G-03")
async def test_a_race_that_the_snapshot_cannot_see_is_a_serialisation_failure(producer: Producer) -> None:
    await producer.rows("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    await producer.rows("SELECT count(*) FROM redrive.message")  # takes the snapshot
    with psycopg.connect(producer.dsn) as other:
        other.execute("SELECT * FROM redrive.enqueue_1('mail', '1', 'k')")
    with pytest.raises(psycopg.errors.SerializationFailure):
        await producer.enqueue("mail", 1, key="k")
    await producer.rollback()
    assert (await producer.enqueue("mail", 1, key="k")).already_existed


@pytest.mark.req("G-03")
@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
async def test_a_duplicate_that_the_snapshot_sees_is_a_success_at_every_isolation_level(
    producer: Producer, level: str
) -> None:
    first = await producer.enqueue("mail", 1, key="k")
    await producer.commit()
    await producer.rows(f"SET TRANSACTION ISOLATION LEVEL {level}")
    assert (await producer.enqueue("mail", 1, key="k")).id == first.id
    await producer.commit()
