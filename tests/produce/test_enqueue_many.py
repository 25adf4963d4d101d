"""Many messages in one call: receipts in order, all or nothing, any number (G-01 to G-03, G-26)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from redrive.errors import InvalidPayload, InvalidValue, KeyReused
from redrive.message import NewMessage
from redrive.produce import protocol
from tests.support.doors import Producer

PAST = datetime(2001, 1, 1, tzinfo=UTC)
FUTURE = datetime(2090, 1, 1, tzinfo=UTC)


async def count(producer: Producer) -> int:
    rows = await producer.rows("SELECT count(*) FROM redrive.message JOIN redrive.pending USING (id)")
    return int(rows[0][0])


async def test_nothing_is_nothing(producer: Producer) -> None:
    assert await producer.enqueue_many([]) == []
    assert await producer.enqueue_many(iter([])) == []


async def test_receipts_come_in_the_order_of_the_messages(producer: Producer) -> None:
    known = await producer.enqueue("mail", "known", key="known")
    receipts = await producer.enqueue_many(
        [
            NewMessage("mail", 0),
            NewMessage("mail", 1, key="z"),
            NewMessage("mail", "known", key="known"),
            NewMessage("mail", 3, key="a"),
            NewMessage("mail", 1, key="z"),
            NewMessage("mail", 5),
        ]
    )
    assert [r.already_existed for r in receipts] == [False, False, True, False, True, False]
    assert receipts[2].id == known.id
    assert receipts[4].id == receipts[1].id
    bodies = dict(await producer.rows("SELECT id, body FROM redrive.message"))
    assert [bodies[r.id] for r in receipts] == [b"0", b"1", b'"known"', b"3", b"1", b"5"]
    assert {r.state for r in receipts} == {"pending"}


async def test_messages_of_one_call_may_differ_in_everything(producer: Producer) -> None:
    await producer.enqueue_many(
        [
            NewMessage("a", {"n": 1}, key="k", tenant="t1", kind="x", priority="high", headers={"h": "1"}),
            NewMessage("b", b"\0", key="k", tenant="t2", priority="low", due_at=FUTURE, content_type="x/y"),
            NewMessage("c", None, expires_at=FUTURE),
        ]
    )
    rows = await producer.rows(
        "SELECT m.destination, m.body, m.key, m.tenant, m.kind, m.level, m.headers, m.content_type, m.expires_at,"
        " p.due_at = %s, p.level, p.destination, p.tenant, p.expires_at"
        " FROM redrive.message m JOIN redrive.pending p USING (id) ORDER BY 1",
        FUTURE,
    )
    assert rows == [
        ("a", b'{"n":1}', "k", "t1", "x", 0, {"h": "1"}, "application/json", None, False, 0, "a", "t1", None),
        ("b", b"\0", "k", "t2", "", 2, None, "x/y", None, True, 2, "b", "t2", None),
        ("c", b"null", None, "default", "", 1, None, "application/json", FUTURE, False, 1, "c", "default", FUTURE),
    ]


@pytest.mark.req("G-26")
@pytest.mark.parametrize("chunk", [2, 10_000])
async def test_a_reused_key_undoes_the_whole_call_and_nothing_else(
    producer: Producer, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "CHUNK_MESSAGES_MAX", chunk)
    first = await producer.enqueue("mail", 1, key="k")
    messages = [
        NewMessage("mail", 0),
        NewMessage("mail", 2, key="k"),
        NewMessage("mail", 3, key="new"),
        NewMessage("mail", 4, key="new"),
        NewMessage("mail", 5, key="k", on_other_payload="first_wins"),
    ]
    with pytest.raises(KeyReused) as refused:
        await producer.enqueue_many(messages)
    text = str(refused.value)
    assert "messages[1]: key 'k'" in text
    assert str(first.id) in text
    assert "messages[3]: key 'new'" in text
    assert "messages[4]" not in text
    await producer.enqueue("mail", 6, key="new")  # the transaction is usable, and the key was not taken
    await producer.commit()
    assert await count(producer) == 2


@pytest.mark.req("G-26")
async def test_first_wins_keeps_the_rest_of_the_call(producer: Producer) -> None:
    await producer.enqueue("mail", 1, key="k")
    receipts = await producer.enqueue_many(
        [NewMessage("mail", n, key="k", on_other_payload="first_wins") for n in (2, 3)] + [NewMessage("mail", 4)]
    )
    assert [r.already_existed for r in receipts] == [True, True, False]
    assert await count(producer) == 2


async def test_a_long_list_of_reused_keys_is_shortened(producer: Producer) -> None:
    await producer.enqueue_many([NewMessage("mail", 1, key=f"k{n}") for n in range(25)])
    with pytest.raises(KeyReused, match=r"messages\[9\].*… and 15 more\."):
        await producer.enqueue_many([NewMessage("mail", 2, key=f"k{n}") for n in range(25)])


@pytest.mark.req("G-19")
@pytest.mark.parametrize(
    ("bad", "error", "why"),
    [
        (NewMessage("mail", {1}), InvalidPayload, r"messages\[2\]: payload is a set"),
        (NewMessage("", 1), InvalidValue, r"messages\[2\]: destination has 0 characters"),
        (
            NewMessage("mail", 1, expires_at=PAST),
            InvalidValue,
            r"messages\[2\]: expires_at is 2001-01-01 .* has passed",
        ),
        ({"destination": "mail"}, InvalidValue, r"messages\[2\] is of type dict; it must be a NewMessage"),
    ],
)
async def test_one_bad_message_refuses_the_call_with_its_position(
    producer: Producer, bad: Any, error: type[Exception], why: str
) -> None:
    good = [NewMessage("mail", n, key=f"k{n}", expires_at=FUTURE) for n in range(4)]
    with pytest.raises(error, match=why):
        await producer.enqueue_many([*good[:2], bad, *good[2:]])
    await producer.commit()
    assert await count(producer) == 0
    await producer.enqueue_many(good)
    assert await count(producer) == 4


@pytest.mark.req("G-19")
async def test_an_expired_message_in_a_later_chunk_undoes_the_earlier_ones(
    producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "CHUNK_MESSAGES_MAX", 2)
    messages = [NewMessage("mail", n, expires_at=None if n < 4 else PAST) for n in range(5)]
    with pytest.raises(InvalidValue, match=r"messages\[4\]: expires_at is .* has passed"):
        await producer.enqueue_many(messages)
    await producer.commit()
    assert await count(producer) == 0


async def test_more_messages_than_a_statement_takes_are_cut_into_several(producer: Producer) -> None:
    number = 2 * protocol.CHUNK_MESSAGES_MAX + 1
    messages = [NewMessage("mail", n, key=f"k{n}" if n % 3 else None) for n in range(number)]
    receipts = await producer.enqueue_many(messages)
    bodies = dict(await producer.rows("SELECT id, body FROM redrive.message"))
    assert [int(bodies[r.id]) for r in receipts] == list(range(number))


async def test_large_payloads_are_cut_into_several_statements_too(
    producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "CHUNK_BYTES_MAX", 1000)
    messages = [NewMessage("mail", bytes([n]) * 400, key=f"k{n}") for n in range(7)] + [NewMessage("mail", b"x" * 5000)]
    chunks = list(protocol._chunks(protocol.prepare_many(messages), range(len(messages))))
    assert sorted(map(len, chunks)) == [1, 1, 2, 2, 2]
    receipts = await producer.enqueue_many(messages)
    bodies = dict(await producer.rows("SELECT id, body FROM redrive.message"))
    assert [bodies[r.id] for r in receipts] == [m.payload for m in messages]


async def test_a_key_in_two_chunks_belongs_to_its_first_position(
    producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "CHUNK_MESSAGES_MAX", 2)
    order = ["b", "a", "c", "b", "a", None, "c", "b"]
    messages = [NewMessage("mail", n, key=key, on_other_payload="first_wins") for n, key in enumerate(order)]
    receipts = await producer.enqueue_many(messages)
    assert [r.already_existed for r in receipts] == [False, False, False, True, True, False, True, True]
    bodies = dict(await producer.rows("SELECT id, body FROM redrive.message"))
    assert [int(bodies[r.id]) for r in receipts] == [0, 1, 2, 0, 1, 5, 2, 0]
