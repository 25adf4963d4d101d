-- status: what became of one message, for the application that enqueued it; named by its id, or by its key.
-- state is pending, leased, parked, or how it was closed; just 'closed' where only the registry of keys remembers it; NULL where
-- there is no such message, or no more. code, reference and result are those of its last attempt. Never the payload.
-- STABLE, so that all of it is one snapshot: a message that moves meanwhile is seen before or after, never nowhere.
-- Locks nothing. Relies on: the primary keys of idempotency, pending, lease and parked, attempt_message.
CREATE OR REPLACE FUNCTION redrive.status_1(
    p_id uuid DEFAULT NULL, p_key text DEFAULT NULL, p_tenant text DEFAULT 'default', OUT id uuid, OUT state text,
    OUT park_reason text, OUT attempt integer, OUT in_doubt boolean, OUT cancel_requested boolean, OUT due_at timestamptz,
    OUT closed_at timestamptz, OUT code text, OUT reference text, OUT result json
) LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = redrive, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
#variable_conflict use_column
DECLARE v_id   uuid := coalesce(p_id, (SELECT i.message_id FROM idempotency i
                                        WHERE i.tenant = p_tenant AND i.key_hash = sha256(convert_to(p_key, 'UTF8'))));
        v_last record;
BEGIN
    id := v_id;
    SELECT o.state, o.park_reason, o.attempt, o.in_doubt, o.cancel_requested, o.due_at
      INTO state, park_reason, attempt, in_doubt, cancel_requested, due_at
      FROM (SELECT 'pending' AS state, NULL AS park_reason, p.attempt, p.in_doubt_since IS NOT NULL AS in_doubt,
                   p.cancel_requested, p.due_at
              FROM pending p WHERE p.id = v_id
            UNION ALL
            SELECT 'leased', NULL, l.attempt, l.in_doubt_since IS NOT NULL, l.cancel_requested, NULL
              FROM lease l WHERE l.id = v_id
            UNION ALL
            SELECT 'parked', k.reason, k.attempt, k.in_doubt_since IS NOT NULL, false, NULL
              FROM parked k WHERE k.id = v_id) o;
    SELECT a.closed, a.completed_at, a.attempt, a.code, a.reference, a.result INTO v_last
      FROM attempt a WHERE a.message_id = v_id
     ORDER BY a.closed IS NOT NULL DESC, a.attempt DESC, a.completed_at DESC LIMIT 1;
    code := v_last.code;
    reference := v_last.reference;
    result := v_last.result;
    IF v_last.closed IS NOT NULL THEN
        state := v_last.closed;
        attempt := v_last.attempt;
        closed_at := v_last.completed_at;
    ELSIF state IS NULL AND p_id IS NULL AND v_id IS NOT NULL THEN
        state := 'closed';
    END IF;
END $body$;
