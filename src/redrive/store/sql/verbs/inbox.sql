-- The inbox of a consumer (G-23): what came from a broker has its effect once. A consumer receives a message in the transaction of its
-- own writes, commits, and only then acknowledges it to the broker. A redelivery finds the row and does nothing.
-- A message that could not be processed is deferred: the inbox row and an engine message to the destination of the consumer's name are
-- one transaction. From there the engine retries, parks and keeps the order.
-- A message that the engine cannot hold stays with the broker: the engine reserves its place in the order (inbox_reserve).

-- inbox_receive: may the caller's transaction process this message? 'first': yes, and the row is written; it commits or rolls back with
-- the caller's writes. 'seen': it was received before, or by a transaction that has just committed; do nothing. 'behind': an earlier
-- message of its ordering key still waits in the engine; nothing was written, and the message must be deferred (inbox_defer), or it
-- would overtake. 'reserved': the engine keeps its place, and it is its turn: process it, and then call inbox_fulfil, or commit without.
-- Waits for another transaction that receives the same message, and with p_order_by for one that receives any message of that key.
-- An ordering key needs READ COMMITTED: an older snapshot would not show what that other transaction has deferred.
-- Locks: an advisory lock on (consumer, ordering key) until the transaction ends, then the inbox row.
-- Relies on: the primary keys of inbox and stream, pending_lane, lease_lane, parked_halting.
CREATE OR REPLACE FUNCTION redrive.inbox_receive_1(
    p_consumer text, p_message_id text, p_order_by text DEFAULT NULL, p_tenant text DEFAULT 'default',
    p_now timestamptz DEFAULT NULL
) RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
DECLARE v_now timestamptz := coalesce(redrive.allowed_now(p_now), clock_timestamp());
BEGIN
    PERFORM redrive.lock_inbox_key(p_consumer, p_message_id, p_order_by, p_tenant);
    IF p_order_by IS NOT NULL THEN
        IF EXISTS (SELECT 1 FROM inbox i WHERE i.consumer = p_consumer AND i.message_id = p_message_id) THEN
            RETURN redrive.received_before(p_consumer, p_message_id);
        ELSIF redrive.waits_in_engine(p_tenant, redrive.inbox_order_by(p_consumer, p_order_by)) THEN
            RETURN 'behind';
        END IF;
    END IF;
    INSERT INTO inbox (consumer, message_id, received_at, outcome, received_in)
    VALUES (p_consumer, p_message_id, v_now, 'processed', pg_current_xact_id()::text::bigint)
    ON CONFLICT DO NOTHING;
    RETURN CASE WHEN FOUND THEN 'first' ELSE redrive.received_before(p_consumer, p_message_id) END;
END $body$;

-- received_before: the answer to a message that has a row. Its reserved place is a message of the engine. That one is parked when its turn
-- has come: 'reserved', and the row stays locked. Until then 'behind'. A person who closed it has given the message up: 'seen'.
-- Locks: the inbox row, if it is reserved. Not the parked row: no person waits for a handler.
CREATE OR REPLACE FUNCTION redrive.received_before(p_consumer text, p_message_id text) RETURNS text
LANGUAGE plpgsql AS $body$
DECLARE v_place uuid;
BEGIN
    SELECT i.deferred_as INTO v_place FROM inbox i
     WHERE i.consumer = p_consumer AND i.message_id = p_message_id AND i.outcome = 'reserved' FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 'seen';
    ELSIF EXISTS (SELECT 1 FROM pending p WHERE p.id = v_place UNION ALL SELECT 1 FROM lease l WHERE l.id = v_place) THEN
        RETURN 'behind';
    END IF;
    RETURN CASE WHEN EXISTS (SELECT 1 FROM parked k WHERE k.id = v_place) THEN 'reserved' ELSE 'seen' END;
END $body$;

-- inbox_defer: the message goes to the engine, for the destination of the consumer's name: in the transaction that received it (after the
-- consumer's writes were rolled back to a savepoint), in one to which inbox_receive said 'behind', or in a new one.
-- result: 'deferred', id is the engine's message; or 'seen': another transaction has received it, and nothing was written.
-- The engine's message has the key inbox:CONSUMER:MESSAGE_ID. If the inbox row was forgotten and that key is known with the same content,
-- the first message stands; with other content a message without a key is made, because nothing may be lost.
-- Locks: as inbox_receive, then those of enqueue.
CREATE OR REPLACE FUNCTION redrive.inbox_defer_1(
    p_consumer text, p_message_id text, p_body bytea, p_order_by text DEFAULT NULL, p_tenant text DEFAULT 'default',
    p_kind text DEFAULT '', p_content_type text DEFAULT 'application/json', p_headers json DEFAULT NULL,
    p_now timestamptz DEFAULT NULL, OUT result text, OUT id uuid
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
#variable_conflict use_column
DECLARE v_now timestamptz := coalesce(redrive.allowed_now(p_now), clock_timestamp());
        v_key text := 'inbox:' || p_consumer || ':' || p_message_id;
        v_new record;
BEGIN
    PERFORM redrive.lock_inbox_key(p_consumer, p_message_id, p_order_by, p_tenant);
    IF redrive.owner_of(p_consumer) IS NOT NULL THEN
        PERFORM redrive.refuse_owned(p_consumer);
    END IF;
    INSERT INTO inbox AS i (consumer, message_id, received_at, outcome, received_in)
    VALUES (p_consumer, p_message_id, v_now, 'deferred', pg_current_xact_id()::text::bigint)
    ON CONFLICT (consumer, message_id) DO UPDATE SET outcome = 'deferred'
     WHERE i.received_in = pg_current_xact_id()::text::bigint AND i.deferred_as IS NULL;
    IF NOT FOUND THEN
        result := 'seen';
        id := (SELECT i.deferred_as FROM inbox i WHERE i.consumer = p_consumer AND i.message_id = p_message_id);
        RETURN;
    END IF;
    FOREACH v_key IN ARRAY ARRAY[v_key, NULL] LOOP
        v_new := redrive.enqueue_internal(p_consumer, p_body, v_key, p_tenant, p_kind, p_content_type, p_headers,
                                          p_order_by => redrive.inbox_order_by(p_consumer, p_order_by), p_now => v_now);
        EXIT WHEN v_new.result <> 'conflict';
    END LOOP;
    UPDATE inbox i SET deferred_as = v_new.id WHERE i.consumer = p_consumer AND i.message_id = p_message_id;
    result := 'deferred';
    id := v_new.id;
END $body$;

-- inbox_reserve: instead of inbox_defer for a message that the engine cannot hold, such as one that is too large: the engine gets a small
-- message p_note in its place, and the broker keeps the message itself. Later messages of the ordering key are then 'behind', for every
-- worker and after a restart. The relay parks the note when its turn has come; the next delivery of the message is then 'reserved'.
-- 'reserved', also if it was before; or 'seen': another transaction has received it, and nothing was written.
-- Locks: as inbox_defer.
CREATE OR REPLACE FUNCTION redrive.inbox_reserve_1(
    p_consumer text, p_message_id text, p_note json, p_content_type text, p_order_by text DEFAULT NULL, p_tenant text DEFAULT 'default',
    p_kind text DEFAULT '', p_now timestamptz DEFAULT NULL
) RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
DECLARE v_now timestamptz := coalesce(redrive.allowed_now(p_now), clock_timestamp());
        v_place uuid;
BEGIN
    PERFORM redrive.lock_inbox_key(p_consumer, p_message_id, p_order_by, p_tenant);
    INSERT INTO inbox AS i (consumer, message_id, received_at, outcome, received_in)
    VALUES (p_consumer, p_message_id, v_now, 'reserved', pg_current_xact_id()::text::bigint)
    ON CONFLICT (consumer, message_id) DO UPDATE SET outcome = 'reserved'
     WHERE i.received_in = pg_current_xact_id()::text::bigint AND i.deferred_as IS NULL;
    IF NOT FOUND THEN
        RETURN (SELECT CASE i.outcome WHEN 'reserved' THEN 'reserved' ELSE 'seen' END
                  FROM inbox i WHERE i.consumer = p_consumer AND i.message_id = p_message_id);
    END IF;
    IF redrive.owner_of(p_consumer) IS NOT NULL THEN
        PERFORM redrive.refuse_owned(p_consumer);
    END IF;
    -- Without a key: it is not the message itself, and one of the same content may have been given up before.
    SELECT e.id INTO v_place
      FROM redrive.enqueue_internal(p_consumer, convert_to(p_note::text, 'UTF8'), NULL, p_tenant, p_kind, p_content_type, NULL,
                                    p_order_by => redrive.inbox_order_by(p_consumer, p_order_by), p_now => v_now) e;
    UPDATE inbox i SET deferred_as = v_place WHERE i.consumer = p_consumer AND i.message_id = p_message_id;
    RETURN 'reserved';
END $body$;

-- inbox_fulfil: the message that was 'reserved' in this transaction is processed: the note in its place is delivered, and what is behind
-- it goes on. Raises where a person has acted on the note meanwhile: roll back, and receive the message again.
-- Locks: the parked row, then its lane, then the audit chain.
CREATE OR REPLACE FUNCTION redrive.inbox_fulfil_1(p_consumer text, p_message_id text, p_now timestamptz DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
DECLARE v_now timestamptz := coalesce(redrive.allowed_now(p_now), clock_timestamp());
        v_place uuid;
        v_row parked;
BEGIN
    UPDATE inbox i SET outcome = 'processed', received_in = pg_current_xact_id()::text::bigint
     WHERE i.consumer = p_consumer AND i.message_id = p_message_id AND i.outcome = 'reserved'
    RETURNING i.deferred_as INTO v_place;
    v_row := redrive.unpark(v_place, ARRAY['dead', 'held', 'unrecorded']);
    IF v_row.id IS NULL THEN
        RAISE EXCEPTION 'The place of the message % of the consumer % is not parked any more.', p_message_id, p_consumer
              USING ERRCODE = '55000';
    END IF;
    PERFORM redrive.close_parked(v_row, 'confirm', 'delivered', NULL, 'consumer ' || p_consumer, 'The event itself was processed.', v_now);
END $body$;

-- lock_inbox_key: refuses values out of bounds; then one transaction at a time has an ordering key of a consumer. Two workers have the
-- same key when the broker gives it from one to the other: the second one waits for what the first does with its message.
CREATE OR REPLACE FUNCTION redrive.lock_inbox_key(p_consumer text, p_message_id text, p_order_by text, p_tenant text) RETURNS void
LANGUAGE plpgsql AS $body$
DECLARE v_why text := CASE
            WHEN coalesce(char_length(p_consumer), 0) NOT BETWEEN 1 AND 100
                THEN format('consumer has %s characters; it must have 1 to 100.', coalesce(char_length(p_consumer), 0))
            WHEN coalesce(char_length(p_message_id), 0) NOT BETWEEN 1 AND 500
                THEN format('message_id has %s characters; it must have 1 to 500.', coalesce(char_length(p_message_id), 0))
            WHEN coalesce(char_length(p_tenant), 0) NOT BETWEEN 1 AND 100
                THEN format('tenant has %s characters; it must have 1 to 100.', coalesce(char_length(p_tenant), 0))
            WHEN char_length(p_order_by) NOT BETWEEN 1 AND 1000
                THEN format('order_by has %s characters; it must have 1 to 1000, or be absent.', char_length(p_order_by))
            WHEN p_order_by IS NOT NULL AND current_setting('transaction_isolation') <> 'read committed'
                THEN format('the transaction is %s; to receive with order_by it must be read committed.',
                            current_setting('transaction_isolation')) END;
BEGIN
    IF v_why IS NOT NULL THEN
        RAISE EXCEPTION '%', v_why USING ERRCODE = '22023';
    END IF;
    IF p_order_by IS NOT NULL THEN
        PERFORM pg_advisory_xact_lock(
            hashtextextended(concat_ws(':', 'redrive.inbox', p_tenant, redrive.inbox_order_by(p_consumer, p_order_by)), 0));
    END IF;
END $body$;

-- inbox_order_by: the engine's ordering key for an ordering key of a consumer: each consumer has its own. One that is too long for the
-- engine is hashed.
CREATE OR REPLACE FUNCTION redrive.inbox_order_by(p_consumer text, p_order_by text) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE AS $body$
    SELECT p_consumer || ':' || CASE WHEN char_length(p_order_by) > 99 THEN encode(sha256(convert_to(p_order_by, 'UTF8')), 'hex')
                                     ELSE p_order_by END
$body$;

-- waits_in_engine: a message of this ordering key is pending, in flight, or parked so that it halts the key.
CREATE OR REPLACE FUNCTION redrive.waits_in_engine(p_tenant text, p_order_by text) RETURNS boolean
LANGUAGE plpgsql STABLE AS $body$
DECLARE v_lane bigint := (SELECT s.id FROM stream s WHERE s.tenant = p_tenant AND s.order_by = p_order_by);
BEGIN
    -- In one statement: a message that moves from pending to lease meanwhile is seen in one of them.
    RETURN v_lane IS NOT NULL AND coalesce(
        (SELECT true FROM pending p WHERE p.lane = v_lane LIMIT 1),
        (SELECT true FROM lease l WHERE l.lane = v_lane LIMIT 1),
        (SELECT true FROM parked k WHERE k.lane = v_lane AND k.halts LIMIT 1),
        false);
END $body$;

-- forget_inbox: deletes rows that were received so many seconds ago, the oldest first, at most p_limit; how many. A row whose engine
-- message is still open stays: received again, the broker's message would be processed beside it.
-- A message that the broker redelivers after that is new, and is processed again.
-- Locks: the rows, with SKIP LOCKED. Relies on: inbox_received, the primary keys of pending, lease and parked.
CREATE OR REPLACE FUNCTION redrive.forget_inbox_1(p_after_seconds float8, p_limit integer, p_now timestamptz DEFAULT NULL) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
DECLARE v_now   timestamptz := coalesce(p_now, clock_timestamp());
        v_count integer;
BEGIN
    DELETE FROM inbox x WHERE x.ctid = ANY (ARRAY(
        SELECT i.ctid FROM inbox i
         WHERE i.received_at < v_now - make_interval(secs => p_after_seconds)
           AND (i.deferred_as IS NULL
                OR coalesce((SELECT true FROM pending p WHERE p.id = i.deferred_as),
                            (SELECT true FROM lease l WHERE l.id = i.deferred_as),
                            (SELECT true FROM parked k WHERE k.id = i.deferred_as)) IS NULL)
         ORDER BY i.received_at LIMIT p_limit FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END $body$;
