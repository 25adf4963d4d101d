"""Claims of many relays at once, beside producers and cancels: each message is claimed once, and none is missed."""

from __future__ import annotations

import itertools
import random
import threading
from functools import partial
from uuid import UUID, uuid4

import psycopg
import pytest

from tests.support.racing import Connection, column, together, value

MESSAGES = 2000
CLAIM = "SELECT id FROM redrive.claim_1(%s, '{mail}', '{1}', %s, 60)"
ENQUEUE_MANY = "SELECT e.id FROM generate_series(1, %s) n CROSS JOIN LATERAL redrive.enqueue_1('mail', int4send(n)) e"


def _claim_until_empty(connection: Connection, *, room: int) -> list[UUID]:
    worker, mine = uuid4(), list[UUID]()
    while batch := column(connection, CLAIM, worker, [room]):
        mine += batch
    return mine


@pytest.mark.req("G-06")
@pytest.mark.req("G-17")
def test_eight_claimers_claim_each_of_two_thousand_messages_once(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        enqueued = column(connection, ENQUEUE_MANY, MESSAGES)
    claimed = together(database, [partial(_claim_until_empty, room=37)] * 8)
    ids = list(itertools.chain.from_iterable(claimed))
    assert len(ids) == MESSAGES
    assert set(ids) == set(enqueued)
    with psycopg.connect(database) as connection:
        assert value(connection, "SELECT count(*) FROM redrive.lease WHERE attempt = 1") == MESSAGES


@pytest.mark.req("G-01")
@pytest.mark.req("G-06")
def test_a_message_that_commits_after_a_later_one_was_claimed_is_not_missed(database: str) -> None:
    with psycopg.connect(database) as slow, psycopg.connect(database, autocommit=True) as relay:
        early = value(slow, "SELECT id FROM redrive.enqueue_1('mail', 'early')")
        late = value(relay, "SELECT id FROM redrive.enqueue_1('mail', 'late')")
        assert early < late
        assert column(relay, CLAIM, uuid4(), [10]) == [late]
        slow.commit()
        assert column(relay, CLAIM, uuid4(), [10]) == [early]


@pytest.mark.req("G-01")
@pytest.mark.req("G-06")
def test_claims_beside_producers_that_commit_and_roll_back_find_exactly_what_was_committed(database: str) -> None:
    producing = threading.Semaphore(0)
    producers, transactions = 3, 60

    def produce(connection: Connection, *, seed: int) -> list[UUID]:
        chance, kept = random.Random(seed), list[UUID]()
        for _ in range(transactions):
            with connection.transaction() as transaction:
                ids = column(connection, ENQUEUE_MANY, chance.randint(1, 9))
                if chance.random() < 0.3:
                    raise psycopg.Rollback(transaction)
                kept += ids
        producing.release()
        return kept

    def relay(connection: Connection) -> list[UUID]:
        mine = list[UUID]()
        done = 0
        while done < producers:
            done += producing.acquire(blocking=False)
            mine += column(connection, CLAIM, uuid4(), [5])
        return mine

    racers = [*(partial(produce, seed=n) for n in range(producers)), partial(relay)]
    *kept, during = together(database, racers)
    with psycopg.connect(database, autocommit=True) as connection:
        afterwards = _claim_until_empty(connection, room=500)
    assert sorted(during + afterwards) == sorted(itertools.chain.from_iterable(kept))


@pytest.mark.req("G-24")
def test_after_the_answer_cancelled_no_claim_ever_exists(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        ids = column(connection, ENQUEUE_MANY, 400)

    said: dict[UUID, set[str]] = {id: set() for id in ids}

    def cancel_all(connection: Connection, *, seed: int) -> list[UUID]:
        for id in random.Random(seed).sample(ids, len(ids)):
            said[id].add(value(connection, "SELECT redrive.cancel_1(%s)", id))
        return []

    storm = [partial(cancel_all, seed=n) for n in range(3)]
    claims = set(itertools.chain(*together(database, [*storm, *[partial(_claim_until_empty, room=3)] * 3])))
    with psycopg.connect(database) as connection:
        flags: dict[UUID, bool] = dict(connection.execute("SELECT id, cancel_requested FROM redrive.lease").fetchall())
        ended = "SELECT count(*) FROM redrive.attempt WHERE closed = 'cancelled'"
        assert value(connection, ended) == len(ids) - len(claims)
    assert flags == dict.fromkeys(claims, True)
    for id in ids:
        assert said[id] == ({"in_flight"} if id in claims else {"cancelled", "already_closed"})
