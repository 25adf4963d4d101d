"""What bare SQL does here: the same claim and settle, in a loop inside the server, with no client and no handler."""

import time
from typing import LiteralString

import psycopg

BATCH = 500

_LOOP: LiteralString = """
CREATE PROCEDURE pg_temp.drain(p_destination text, p_batch integer) LANGUAGE plpgsql AS $$
DECLARE
    v_worker   uuid := gen_random_uuid();
    v_ids      uuid[];
    v_attempts integer[];
    v_bytes    bigint;
BEGIN
    LOOP
        SELECT array_agg(c.id), array_agg(c.attempt), sum(octet_length(c.body)) INTO v_ids, v_attempts, v_bytes
          FROM redrive.claim_1(v_worker, ARRAY[p_destination], ARRAY[1::smallint], ARRAY[p_batch], 60) c;
        COMMIT;
        EXIT WHEN v_ids IS NULL;
"""
_SETTLE: LiteralString = """
        PERFORM redrive.settle_delivered_1(v_worker, v_ids, v_attempts, array_fill(1, ARRAY[cardinality(v_ids)]),
                                           array_fill(NULL::text, ARRAY[cardinality(v_ids)]),
                                           array_fill('000000000000'::text, ARRAY[cardinality(v_ids)]));
        COMMIT;
"""
_SETTLE_AND_HAND_OVER: LiteralString = """
        WHILE v_ids IS NOT NULL LOOP
            SELECT array_agg(c.id), array_agg(c.attempt), sum(octet_length(c.body)) INTO v_ids, v_attempts, v_bytes
              FROM redrive.settle_delivered_1(v_worker, v_ids, v_attempts, array_fill(1, ARRAY[cardinality(v_ids)]),
                                              NULL, ARRAY['000000000000'], array_fill(true, ARRAY[cardinality(v_ids)]),
                                              60) c;
            COMMIT;
        END LOOP;
"""
_END: LiteralString = "END LOOP; END $$"


def drain_rate(dsn: str, destination: str, count: int) -> float:
    """Messages per second, one connection, batches of 500, two commits a batch."""
    return _rate(dsn, _SETTLE, destination, count)


def drain_lanes_rate(dsn: str, destination: str, count: int) -> float:
    """The same for ordered messages, each lane handed over from one message to the next."""
    return _rate(dsn, _SETTLE_AND_HAND_OVER, destination, count)


def _rate(dsn: str, settle: LiteralString, destination: str, count: int) -> float:
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(_LOOP + settle + _END)
        began = time.perf_counter()
        conn.execute("CALL pg_temp.drain(%s, %s)", [destination, BATCH])
        return count / (time.perf_counter() - began)
