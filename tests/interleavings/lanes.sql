-- Helpers of the interleaving tests of one lane, in a schema of their own. They only call the verbs.
CREATE SCHEMA interleaving;

-- The messages of the lane, by their number: rows of transactions that were rolled back are not here.
CREATE TABLE interleaving.member (sequence bigint PRIMARY KEY, id uuid NOT NULL);

CREATE FUNCTION interleaving.id_of(p_sequence bigint) RETURNS uuid LANGUAGE sql STABLE AS $$
    SELECT coalesce((SELECT m.id FROM interleaving.member m WHERE m.sequence = p_sequence),
                    '00000000-0000-4000-8000-000000000000')
$$;

CREATE FUNCTION interleaving.enqueue(
    p_now timestamptz, p_destination text DEFAULT 'mail', p_due_at timestamptz DEFAULT NULL,
    p_expires_at timestamptz DEFAULT NULL
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    v_new record;
BEGIN
    SELECT * INTO v_new FROM redrive.enqueue_1(p_destination, '\x7b7d', p_order_by => 'customer:1', p_due_at => p_due_at,
                                               p_expires_at => p_expires_at, p_now => p_now);
    INSERT INTO interleaving.member VALUES (v_new.sequence, v_new.id);
    RETURN v_new.sequence;
END $$;

-- What was claimed, as 2/1 (second message, first attempt), with a word where it has overtaken another. Whoever claims
-- holds the lane, so this later statement sees what the claim saw.
CREATE FUNCTION interleaving.said(p_row redrive.claimed) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    RETURN CASE WHEN p_row.attempt IS NULL THEN 'expired ' || p_row.sequence
                WHEN EXISTS (SELECT 1 FROM redrive.pending p WHERE p.sequence < p_row.sequence)
                  OR EXISTS (SELECT 1 FROM redrive.lease l WHERE l.sequence <> p_row.sequence)
                  OR EXISTS (SELECT 1 FROM redrive.parked k WHERE k.sequence < p_row.sequence AND k.halts)
                THEN p_row.sequence || '/' || p_row.attempt || ' overtakes'
                ELSE p_row.sequence || '/' || p_row.attempt END;
END $$;

CREATE FUNCTION interleaving.claim(
    p_worker uuid, p_lease_seconds float8, p_now timestamptz, p_destinations text[] DEFAULT '{mail,sms}'
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    v_row redrive.claimed;
BEGIN
    SELECT * INTO v_row
      FROM redrive.claim_1(p_worker, p_destinations, array_fill(1::smallint, ARRAY[cardinality(p_destinations)]),
                           array_fill(5, ARRAY[cardinality(p_destinations)]), p_lease_seconds, p_now => p_now) c
     WHERE c.id IS NOT NULL;
    RETURN CASE WHEN FOUND THEN interleaving.said(v_row) ELSE 'nothing' END;
END $$;

CREATE FUNCTION interleaving.claim_suspect(p_worker uuid, p_lease_seconds float8, p_now timestamptz)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    v_row redrive.claimed;
BEGIN
    SELECT * INTO v_row FROM redrive.claim_suspect_1(p_worker, '{mail,sms}', p_lease_seconds, p_now);
    RETURN CASE WHEN FOUND THEN interleaving.said(v_row) ELSE 'nothing' END;
END $$;

-- settled, refused or repeated, and what was handed over.
CREATE FUNCTION interleaving.deliver(
    p_worker uuid, p_sequence bigint, p_attempt integer, p_hand_over boolean, p_lease_seconds float8, p_now timestamptz
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    v_row redrive.claimed;
BEGIN
    SELECT * INTO v_row FROM redrive.settle_delivered_1(
        p_worker, ARRAY[interleaving.id_of(p_sequence)], ARRAY[p_attempt], '{5}', '{reference}', '{rules}',
        ARRAY[p_hand_over], p_lease_seconds, p_now);
    RETURN CASE WHEN NOT FOUND THEN 'settled' ELSE coalesce(v_row.refusal, 'settled, then ' || interleaving.said(v_row)) END;
END $$;

-- One outcome of one claim, by settle_1 with all its arrays: close, retry, retry_later, advance, or park as dead (halting
-- or going on) or held.
CREATE FUNCTION interleaving.settle(
    p_worker uuid, p_sequence bigint, p_attempt integer, p_kind text, p_now timestamptz, p_verb text DEFAULT 'settle'
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    v_result text;
    v_parks  boolean := p_kind IN ('halting', 'going_on', 'held');
BEGIN
    SELECT s.result INTO v_result FROM redrive.settle_1(
        p_worker, p_verb, ARRAY[interleaving.id_of(p_sequence)], ARRAY[p_attempt],
        ARRAY[CASE WHEN v_parks THEN 'park' WHEN p_kind LIKE 'retry%' THEN 'retry' ELSE p_kind END],
        ARRAY[CASE WHEN p_kind = 'close' THEN 'delivered' END],
        ARRAY[CASE p_kind WHEN 'close' THEN 'delivered' WHEN 'advance' THEN 'advance' ELSE 'retryable' END],
        ARRAY['HTTP_503'], ARRAY['busy'], ARRAY[NULL::text], ARRAY[NULL::text], ARRAY[5], ARRAY[1], ARRAY[0],
        ARRAY[CASE WHEN p_kind = 'retry_later' THEN 90 * 86400 ELSE 0 END::float8],
        ARRAY[CASE WHEN p_kind = 'held' THEN 'now' ELSE 'none' END], ARRAY[false],
        ARRAY[CASE WHEN p_kind = 'advance' THEN 'second' END], ARRAY[NULL::text],
        ARRAY[CASE WHEN p_kind = 'held' THEN 'held' WHEN v_parks THEN 'dead' END], ARRAY[false],
        ARRAY[p_kind IN ('halting', 'held')], ARRAY[NULL::text], ARRAY[NULL::text], ARRAY[NULL::text], ARRAY['rules'],
        p_now) s;
    RETURN coalesce(v_result, 'settled');
END $$;

-- The lane in the state asked for, and nothing else; the database's number of it.
CREATE FUNCTION interleaving.prepare(p_state text, p_worker uuid, p_now timestamptz) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    v_before   timestamptz := p_now - interval '500 seconds';
    v_messages integer := CASE WHEN p_state LIKE '%alone' OR p_state = 'empty' THEN 1
                               WHEN p_state LIKE '%three' THEN 3 ELSE 2 END;
BEGIN
    DELETE FROM redrive.pending;
    DELETE FROM redrive.lease;
    DELETE FROM redrive.parked;
    DELETE FROM redrive.lane_wake;
    DELETE FROM redrive.lane;
    DELETE FROM redrive.stream;
    DELETE FROM redrive.destination;
    DELETE FROM interleaving.member;
    PERFORM interleaving.enqueue(
        v_before, p_due_at => CASE WHEN p_state = 'delayed' THEN p_now + interval '90 days' END,
        p_expires_at => CASE WHEN p_state LIKE '%expired' THEN p_now - interval '10 seconds' END);
    FOR i IN 2..v_messages LOOP
        PERFORM interleaving.enqueue(v_before, CASE WHEN p_state LIKE 'other%' THEN 'sms' ELSE 'mail' END);
    END LOOP;
    CASE
        WHEN p_state LIKE 'pending%' OR p_state IN ('delayed', 'expired', 'other_expired') THEN NULL;
        WHEN p_state = 'other_token' THEN  -- a token of the first is left, and leads those who claim mail to the second
            PERFORM redrive.cancel_1(interleaving.id_of(1), NULL, NULL, v_before);
        WHEN p_state LIKE 'leased%' OR p_state = 'other_destination' THEN
            PERFORM interleaving.claim(p_worker, 5000, p_now);
        WHEN p_state = 'paused' THEN
            PERFORM interleaving.claim(p_worker, 5000, p_now);
            PERFORM redrive.pause_1('mail', 'ann', 'maintenance');
        WHEN p_state = 'behind_three' THEN  -- the first was given up; the second is in hand
            PERFORM interleaving.claim(p_worker, 5000, p_now);
            PERFORM interleaving.settle(p_worker, 1, 1, 'going_on', p_now);
            PERFORM interleaving.claim(p_worker, 5000, p_now);
        WHEN p_state = 'halted_behind_three' THEN  -- the first was given up; the second halts
            FOR i IN 1..2 LOOP
                PERFORM interleaving.claim(p_worker, 30, v_before);
                PERFORM interleaving.settle(p_worker, i, 1, CASE i WHEN 1 THEN 'going_on' ELSE 'halting' END, v_before);
            END LOOP;
        WHEN p_state = 'before_a_suspect' THEN  -- the first was sent again while the second is a suspect
            PERFORM interleaving.claim(p_worker, 30, v_before);
            PERFORM interleaving.settle(p_worker, 1, 1, 'going_on', v_before);
            PERFORM interleaving.claim(p_worker, 30, v_before);
            PERFORM redrive.reap_1(1, NULL, p_now);
            PERFORM redrive.requeue_1(interleaving.id_of(1), 'ann', 'looked into it', NULL, true, p_now);
            PERFORM interleaving.claim(p_worker, 5000, p_now);
        ELSE
            PERFORM interleaving.claim(p_worker, 30, v_before);
            CASE p_state
                WHEN 'run_out' THEN NULL;
                WHEN 'suspect' THEN PERFORM redrive.reap_1(1, NULL, p_now);
                WHEN 'empty' THEN PERFORM interleaving.deliver(p_worker, 1, 1, false, 30, v_before);
                ELSE PERFORM interleaving.settle(p_worker, 1, 1, p_state, v_before);
            END CASE;
    END CASE;
    RETURN (SELECT s.id FROM redrive.stream s);
END $$;

-- All that can be known of one message of the lane, without times.
CREATE FUNCTION interleaving.facts_of(p_id uuid) RETURNS json LANGUAGE sql AS $$
    SELECT json_build_object(
        'state', redrive.state_of(p_id),
        'pending', (SELECT json_build_object(
            'attempt', p.attempt, 'suspect', p.suspect, 'cancel_requested', p.cancel_requested, 'stage', p.stage,
            'in_doubt', p.in_doubt_since IS NOT NULL) FROM redrive.pending p WHERE p.id = p_id),
        'lease', (SELECT json_build_object(
            'attempt', l.attempt, 'alone', l.alone, 'cancel_requested', l.cancel_requested, 'stage', l.stage,
            'in_doubt', l.in_doubt_since IS NOT NULL) FROM redrive.lease l WHERE l.id = p_id),
        'parked', (SELECT json_build_object(
            'attempt', k.attempt, 'reason', k.reason, 'halts', k.halts, 'in_doubt', k.in_doubt_since IS NOT NULL)
            FROM redrive.parked k WHERE k.id = p_id),
        'archive', (SELECT coalesce(json_agg(json_build_object(
            'attempt', a.attempt, 'verb', a.verb, 'settlement', a.settlement, 'closed', a.closed, 'in_doubt', a.in_doubt)
            ORDER BY a.attempt, a.verb, a.settlement, a.closed), '[]') FROM redrive.attempt a WHERE a.message_id = p_id),
        'late', (SELECT count(*) FROM redrive.late_answer t WHERE t.message_id = p_id))
$$;

-- The lane as it was left; then, a long time after, what the duty had to mend, and in which order the rest went out.
CREATE FUNCTION interleaving.facts(p_lane bigint, p_now timestamptz) RETURNS json LANGUAGE plpgsql AS $$
DECLARE
    v_messages json := (SELECT json_agg(interleaving.facts_of(m.id) ORDER BY m.sequence) FROM interleaving.member m);
    v_stream   json := (SELECT json_build_object('last', s.last_sequence, 'numbers', (
                            SELECT json_agg(m.sequence ORDER BY m.sequence) FROM interleaving.member m))
                          FROM redrive.stream s WHERE s.id = p_lane);
    v_later    timestamptz := p_now + interval '200 days';
    v_astray   integer := interleaving.tokens_astray();
    v_mended   integer := (SELECT m.mended FROM redrive.mend_lanes_1(10000, v_later) m);
BEGIN
    RETURN json_build_object('messages', v_messages, 'stream', v_stream, 'mended', v_mended, 'astray', v_astray,
                             'drained', interleaving.drain(v_later));
END $$;

-- Free heads for which there are tokens, but none that leads those who claim for its destination to it.
CREATE FUNCTION interleaving.tokens_astray() RETURNS integer LANGUAGE sql AS $$
    SELECT count(*) FROM redrive.free_heads(ARRAY(SELECT l.id FROM redrive.lane l)) h
     WHERE NOT h.suspect AND NOT EXISTS (
        SELECT 1 FROM redrive.lane_wake w
         WHERE w.lane = h.lane AND w.destination = h.destination AND w.level = h.level
           AND w.due_at <= h.due_at + interval '1 hour')
$$;

-- Everything goes out, in the order returned: claims that ran out are reaped, and a person discards what halts the lane.
CREATE FUNCTION interleaving.drain(p_now timestamptz) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    v_now    timestamptz := p_now;
    v_worker uuid := gen_random_uuid();
    v_said   text;
    v_log    text[] := '{}';
    v_halts  uuid;
    v_looks  integer := 0;  -- in a row that found nothing: the first may have led a token to its destination
BEGIN
    DELETE FROM redrive.destination;
    FOR i IN 1..40 LOOP
        EXIT WHEN NOT EXISTS (SELECT FROM redrive.pending UNION ALL SELECT FROM redrive.lease
                              UNION ALL SELECT FROM redrive.parked k WHERE k.halts);
        v_now := v_now + interval '1 minute';
        v_said := interleaving.claim(v_worker, 30, v_now);
        IF v_said = 'nothing' AND EXISTS (SELECT FROM redrive.pending p WHERE p.suspect) THEN
            v_said := interleaving.claim_suspect(v_worker, 30, v_now);
        END IF;
        IF v_said ~ '^\d' THEN
            PERFORM interleaving.deliver(v_worker, split_part(v_said, '/', 1)::bigint,
                                         substring(v_said FROM '/(\d+)')::integer, false, 30, v_now);
        ELSIF v_said = 'nothing' THEN
            v_looks := v_looks + 1;
            CONTINUE WHEN EXISTS (SELECT FROM redrive.lease) AND redrive.reap_1(10, NULL, v_now) > 0;
            SELECT k.id INTO v_halts FROM redrive.parked k WHERE k.halts ORDER BY k.sequence LIMIT 1;
            EXIT WHEN NOT FOUND AND v_looks > 1;
            PERFORM redrive.discard_1(v_halts, 'ann', 'given up', v_now) WHERE v_halts IS NOT NULL;
            CONTINUE;
        END IF;
        v_looks := 0;
        v_log := v_log || v_said;
    END LOOP;
    RETURN v_log || ARRAY(SELECT 'left ' || p.sequence FROM redrive.pending p);
END $$;
