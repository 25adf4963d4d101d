"""Tokens in the database: made by the same formula as in Python, kept with every attempt, dated by their first use."""

from __future__ import annotations

import uuid

import psycopg
import pytest

from redrive.message import MessageId, token
from redrive.store.runtime.postgres import PostgresStore
from tests.support import messages as m
from tests.support.verbs import ACT

SEED = "instruction 1"


@pytest.mark.req("P-05")
@pytest.mark.parametrize("seed", [None, "a", "a:b", "ü 漢", "x" * 1000])
@pytest.mark.parametrize(("version", "stage"), [(1, "first"), (1, "second"), (2, "first"), (1000, "štage")])
@pytest.mark.parametrize("tenant", ["default", "a:1"])
def test_python_and_sql_make_the_same_token(
    database: str, seed: str | None, version: int, stage: str, tenant: str
) -> None:
    id = MessageId(uuid.UUID("01890a5d-ac96-774b-bcce-b302099a8057"))
    with psycopg.connect(database) as connection:
        query = "SELECT coalesce(redrive.token_of(%s, %s, %s, %s, %s), %s)::text"
        row = connection.execute(query, [id, tenant, seed, version, stage, id]).fetchone()
    assert row == (token(id, version, stage, tenant=tenant, seed=seed),)


@pytest.mark.req("P-05")
async def test_the_archive_keeps_which_token_each_attempt_used(store: PostgresStore) -> None:
    id = await m.enqueue(store, token_seed=SEED)
    await m.settle(store, await m.claim(store), m.retry(in_doubt=True), now=m.at(1))
    await m.claim(store, now=m.at(2))
    await store.reap(limit=1, worker=m.WORKER, now=m.at(3))
    await m.settle(store, await m.claim_suspect(store, now=m.at(4)), m.park(), worker=m.OTHER_WORKER, now=m.at(5))
    await store.requeue(id, **ACT, now=m.at(6))
    await m.settle(store, await m.claim(store, now=m.at(7)), m.close(), now=m.at(8))
    rows = await store.rows(
        "SELECT verb, token::text FROM redrive.attempt WHERE message_id = %s ORDER BY completed_at", [id]
    )
    expected = token(id, 1, "first", tenant="default", seed=SEED)
    assert rows == [(verb, expected) for verb in ("settle", "reap", "settle", "requeue", "settle")]


@pytest.mark.req("P-05")
async def test_a_message_in_doubt_says_since_when_its_token_was_used(store: PostgresStore) -> None:
    """How long a destination remembers a token counts from its first use, not from the doubt."""
    await m.enqueue(store, token_seed=SEED)
    first = await m.claim(store)
    assert first.token_used_since is None
    await m.settle(store, first, m.retry(), now=m.at(10))
    second = await m.claim(store, now=m.at(20))
    await m.settle(store, second, m.retry(in_doubt=True), now=m.at(30))
    third = await m.claim(store, now=m.at(40))
    assert (third.token_used_since, third.in_doubt_since) == (first.claimed_at, m.at(30))


@pytest.mark.req("P-05")
async def test_a_relay_that_does_not_know_tokens_gets_no_money(store: PostgresStore) -> None:
    """An older relay would send a payment under its id, while its rail may know it under its token."""
    await m.enqueue(store, token_seed=SEED)
    await store.rows("INSERT INTO redrive.destination (name, money) VALUES (%s, true) RETURNING 1", [m.DESTINATION])
    claim = "SELECT count(*) FROM redrive.claim_1(%s, %s, '{1}', '{5}', 30, NULL, %s)"
    assert await store.rows(claim, [m.WORKER, [m.DESTINATION], m.at(1)]) == [(0,)]
    assert len((await m.claim_all(store, now=m.at(1))).attempts) == 1
