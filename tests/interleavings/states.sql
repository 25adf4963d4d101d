-- Helpers of the interleaving tests, in a schema of their own. They only call the verbs.
CREATE SCHEMA interleaving;

-- One outcome of one claim, by settle_1 with all its arrays: retry, retry_in_doubt, or park for a reason.
CREATE FUNCTION interleaving.settle(p_worker uuid, p_id uuid, p_attempt integer, p_kind text, p_now timestamptz)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    v_result text;
BEGIN
    SELECT s.result INTO v_result FROM redrive.settle_1(
        p_worker, 'settle', ARRAY[p_id], ARRAY[p_attempt],
        ARRAY[CASE WHEN p_kind LIKE 'retry%' THEN 'retry' ELSE 'park' END], ARRAY[NULL::text],
        ARRAY['retryable'], ARRAY['HTTP_503'], ARRAY['busy'], ARRAY[NULL::text], ARRAY[NULL::text], ARRAY[5], ARRAY[1], ARRAY[0],
        ARRAY[0::float8], ARRAY[CASE WHEN p_kind IN ('retry_in_doubt', 'held') THEN 'now' ELSE 'none' END], ARRAY[false],
        ARRAY[NULL::text], ARRAY[NULL::text], ARRAY[CASE WHEN p_kind NOT LIKE 'retry%' THEN p_kind END], ARRAY[false],
        ARRAY[false], ARRAY[NULL::text], ARRAY[NULL::text],
        ARRAY[CASE WHEN p_kind = 'unrecorded' THEN '{"answer": "delivered"}' END], ARRAY['rules'], p_now) s;
    RETURN coalesce(v_result, 'settled');
END $$;

CREATE FUNCTION interleaving.deliver(p_worker uuid, p_id uuid, p_attempt integer, p_now timestamptz)
RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    RETURN coalesce((SELECT s.refusal FROM redrive.settle_delivered_1(
        p_worker, ARRAY[p_id], ARRAY[p_attempt], ARRAY[5], ARRAY['reference'], ARRAY['rules'], NULL, NULL, p_now) s), 'settled');
END $$;

-- The attempt number of what was claimed, or nothing. A suspect is claimed alone, as a relay does it.
CREATE FUNCTION interleaving.claim(p_worker uuid, p_lease_seconds float8, p_now timestamptz)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    v_row redrive.claimed;
BEGIN
    SELECT * INTO v_row FROM redrive.claim_1(p_worker, '{mail}', '{1}', '{5}', p_lease_seconds, p_now => p_now);
    IF NOT FOUND THEN
        SELECT * INTO v_row FROM redrive.claim_suspect_1(p_worker, '{mail}', p_lease_seconds, p_now);
    END IF;
    RETURN CASE WHEN v_row.expired AND v_row.attempt IS NULL THEN 'expired' ELSE v_row.attempt::text END;
END $$;

-- A message in the state asked for; its id.
CREATE FUNCTION interleaving.prepare(p_state text, p_worker uuid, p_now timestamptz) RETURNS uuid LANGUAGE plpgsql AS $$
DECLARE
    v_id     uuid;
    v_before timestamptz := p_now - interval '500 seconds';
BEGIN
    SELECT e.id INTO v_id FROM redrive.enqueue_1(
        'mail', '\x7b7d', p_now => v_before,
        p_due_at => CASE WHEN p_state = 'pending_future' THEN p_now + interval '90 days' END,
        p_expires_at => CASE WHEN p_state = 'pending_expired' THEN p_now - interval '10 seconds' END) e;
    IF p_state LIKE 'pending%' THEN
        RETURN v_id;
    ELSIF p_state = 'leased' THEN
        PERFORM interleaving.claim(p_worker, 5000, p_now);
        RETURN v_id;
    END IF;
    PERFORM interleaving.claim(p_worker, 30, v_before);
    CASE p_state
        WHEN 'leased_run_out' THEN NULL;
        WHEN 'suspect' THEN PERFORM redrive.reap_1(1, NULL, p_now);
        WHEN 'closed' THEN PERFORM interleaving.deliver(p_worker, v_id, 1, v_before);
        ELSE PERFORM interleaving.settle(p_worker, v_id, 1, p_state, v_before);
    END CASE;
    RETURN v_id;
END $$;

-- All that can be known of a message, without times.
CREATE FUNCTION interleaving.facts(p_id uuid) RETURNS json LANGUAGE sql AS $$
    SELECT json_build_object(
        'state', redrive.state_of(p_id),
        'pending', (SELECT json_agg(json_build_object(
            'attempt', p.attempt, 'spent', p.spent, 'crashes', p.crashes, 'suspect', p.suspect,
            'cancel_requested', p.cancel_requested, 'in_doubt', p.in_doubt_since IS NOT NULL,
            'kept_answer', p.kept_answer)) FROM redrive.pending p WHERE p.id = p_id),
        'lease', (SELECT json_agg(json_build_object(
            'attempt', l.attempt, 'spent', l.spent, 'crashes', l.crashes, 'alone', l.alone,
            'cancel_requested', l.cancel_requested, 'in_doubt', l.in_doubt_since IS NOT NULL,
            'lease_seconds', l.lease_seconds, 'kept_answer', l.kept_answer)) FROM redrive.lease l WHERE l.id = p_id),
        'parked', (SELECT json_agg(json_build_object(
            'attempt', k.attempt, 'spent', k.spent, 'reason', k.reason, 'in_doubt', k.in_doubt_since IS NOT NULL))
            FROM redrive.parked k WHERE k.id = p_id),
        'archive', (SELECT coalesce(json_agg(json_build_object(
            'attempt', a.attempt, 'verb', a.verb, 'settlement', a.settlement, 'answer', a.answer, 'closed', a.closed,
            'in_doubt', a.in_doubt)
            ORDER BY a.attempt, a.verb, a.settlement, a.closed), '[]') FROM redrive.attempt a WHERE a.message_id = p_id),
        'late', (SELECT coalesce(json_agg(json_build_object('attempt', t.attempt, 'settlement', t.settlement)
            ORDER BY t.attempt, t.settlement), '[]') FROM redrive.late_answer t WHERE t.message_id = p_id))
$$;

-- The hot tables emptied, so that the next case finds only its own message. The archive refuses that, and may stay.
CREATE FUNCTION interleaving.clear() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM redrive.pending;
    DELETE FROM redrive.lease;
    DELETE FROM redrive.parked;
END $$;
