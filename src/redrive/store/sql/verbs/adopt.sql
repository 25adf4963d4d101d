-- adopt: a message of another outbox becomes one of ours, with the id, the number and the number of attempts that it had there: its
-- destination knows it by them. For a migration that replaces that outbox in one transaction; only the owner may call it.
-- p_as: pending; doubtful (pending, and the destination is asked before anything is sent); dead (it was given up, and no one
-- knows for certain that it had no effect); delivered. Numbers of an ordering key come in order and without gaps, from wherever
-- the first of them begins.
-- Answers 'done', or what is in the way: 'exists' (the id or the key is taken), 'gap'.
-- Locks: as enqueue does. Relies on: the primary keys of idempotency and message, stream's key.
CREATE OR REPLACE FUNCTION redrive.adopt_1(
    p_id uuid, p_as text, p_destination text, p_body bytea, p_key text, p_tenant text, p_kind text, p_headers json,
    p_order_by text, p_sequence bigint, p_attempt integer, p_source_id text, p_created_at timestamptz, p_actor text,
    p_reason text, p_reference text DEFAULT NULL, p_now timestamptz DEFAULT NULL
) RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
DECLARE v_now   timestamptz := coalesce(p_now, clock_timestamp());
        v_doubt timestamptz := CASE WHEN p_as IN ('doubtful', 'dead') THEN v_now END;
        v_level CONSTANT smallint := 1;
        v_lane  bigint;
        v_last  bigint;
BEGIN
    IF p_as NOT IN ('pending', 'doubtful', 'dead', 'delivered') OR p_as IS NULL THEN
        RAISE EXCEPTION 'p_as is %; it must be pending, doubtful, dead or delivered.', p_as USING ERRCODE = '22023';
    END IF;
    IF NOT redrive.is_within_bounds(p_destination, p_body, p_key, p_tenant, p_kind, 'application/json', p_headers, NULL, NULL,
                                    v_level, p_order_by, NULL, v_now) IS TRUE THEN
        PERFORM redrive.refuse_message(p_destination, p_body, p_key, p_tenant, p_kind, 'application/json', p_headers, NULL, NULL,
                                       v_level, p_order_by, NULL, v_now);
    END IF;
    IF EXISTS (SELECT 1 FROM message m WHERE m.id = p_id) THEN RETURN 'exists'; END IF;
    INSERT INTO idempotency (tenant, key_hash, message_id, fingerprint, created_at)
    VALUES (p_tenant, sha256(convert_to(p_key, 'UTF8')), p_id, redrive.fingerprint(p_destination, p_kind, p_order_by, p_body),
            v_now)
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN RETURN 'exists'; END IF;
    SELECT s.id, s.last_sequence INTO v_lane, v_last FROM stream s
     WHERE s.tenant = p_tenant AND s.order_by = p_order_by FOR UPDATE;
    IF v_lane IS NULL THEN
        INSERT INTO stream (tenant, order_by, last_sequence) VALUES (p_tenant, p_order_by, p_sequence) RETURNING id INTO v_lane;
        INSERT INTO lane (id) VALUES (v_lane);
    ELSIF p_sequence <> v_last + 1 THEN
        RETURN 'gap';
    ELSE
        UPDATE stream s SET last_sequence = p_sequence WHERE s.id = v_lane;
    END IF;
    INSERT INTO message (id, created_at, lane, sequence, level, tenant, destination, kind, key, order_by, source_id, content_type,
                         headers, body)
    VALUES (p_id, p_created_at, v_lane, p_sequence, v_level, p_tenant, p_destination, p_kind, p_key, p_order_by, p_source_id,
            'application/json', p_headers, p_body);
    INSERT INTO attempt (message_id, completed_at, attempt, spent, version, in_doubt, verb, tenant, destination, stage, closed,
                         reference, actor, reason)
    VALUES (p_id, v_now, p_attempt, 0, 1, v_doubt IS NOT NULL, 'adopt', p_tenant, p_destination, 'first',
            CASE WHEN p_as = 'delivered' THEN 'delivered' END, p_reference, p_actor, p_reason);
    IF p_as IN ('pending', 'doubtful') THEN
        INSERT INTO pending (id, due_at, lane, sequence, level, tenant, destination, attempt, in_doubt_since, first_failed_at)
        VALUES (p_id, v_now, v_lane, p_sequence, v_level, p_tenant, p_destination, p_attempt, v_doubt, v_doubt);
        INSERT INTO lane_wake (destination, level, due_at, lane) VALUES (p_destination, v_level, v_now, v_lane);
    ELSIF p_as = 'dead' THEN
        INSERT INTO parked (id, reason, parked_at, first_failed_at, last_failed_at, tenant, destination, stage, version, level,
                            lane, sequence, attempt, spent, lookups, crashes, error_class, exhausted, halts, in_doubt_since, context)
        VALUES (p_id, 'dead', v_now, v_now, v_now, p_tenant, p_destination, 'first', 1, v_level, v_lane, p_sequence, p_attempt, 0,
                0, 0, 'ADOPTED_DEAD', false, false, v_doubt, '{}');
    END IF;
    RETURN 'done';
END $body$;
