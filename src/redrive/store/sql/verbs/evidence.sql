-- redrive: after parked
-- Evidence that a message was delivered although its claim says otherwise (G-14, P-11): a late answer "delivered", or what a system knows,
-- such as an entry of a rail's statement. A message with evidence is held: it is never sent, edited, denied, discarded, skipped or
-- cancelled by a person; it is confirmed.
-- Nothing here is called from outside. Everything is taken with SKIP LOCKED, so none of it ever waits: a caller may hold lanes and the
-- audit chain already.

-- has_evidence: whether there is any.
CREATE OR REPLACE FUNCTION redrive.has_evidence(p_id uuid) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = redrive, pg_temp AS $body$
BEGIN
    RETURN EXISTS (SELECT 1 FROM evidence e WHERE e.message_id = p_id);
END $body$;

-- add_evidence: kept once for each (message, kind, subject); the message is held where nothing else has it in hand.
CREATE OR REPLACE FUNCTION redrive.add_evidence(
    p_message_id uuid, p_kind text, p_subject text, p_reference text, p_now timestamptz
) RETURNS void LANGUAGE plpgsql SET search_path = redrive, pg_temp AS $body$
BEGIN
    INSERT INTO evidence (message_id, kind, subject, reference, at)
    VALUES (p_message_id, p_kind, p_subject, p_reference, p_now)
    ON CONFLICT DO NOTHING;
    PERFORM redrive.hold_proven(p_message_id, p_now);
END $body$;

-- hold_proven: a message that evidence says was delivered, pending or dead, is parked as held, with the code LATE_SUCCESS. One whose answer
-- is kept is left alone: it is recorded, never sent. What another transaction holds is left too: the next claim parks it (policy.opening),
-- settle does where it is in flight, and every act refuses it.
-- Locks: the parked row, the lane, the pending row, each with SKIP LOCKED.
CREATE OR REPLACE FUNCTION redrive.hold_proven(p_id uuid, p_now timestamptz) RETURNS void
LANGUAGE plpgsql SET search_path = redrive, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
DECLARE v_text    text;
        v_group   bytea;
        v_parked  parked;
        v_lane    bigint;
        v_pending pending;
BEGIN
    SELECT format('There is evidence that it was delivered: %s%s.', e.kind, coalesce(', reference ' || e.reference, '')) INTO v_text
      FROM evidence e WHERE e.message_id = p_id ORDER BY e.at, e.kind, e.subject LIMIT 1;
    IF NOT FOUND THEN RETURN; END IF;
    SELECT * INTO v_parked FROM parked k WHERE k.id = p_id AND k.reason = 'dead' FOR UPDATE SKIP LOCKED;
    IF FOUND THEN
        IF NOT redrive.try_lane(v_parked.lane) THEN RETURN; END IF;
        v_group := redrive.tally_proven(p_id, v_parked.destination, p_now);
        UPDATE parked k SET reason = 'held', halts = true, error_class = 'LATE_SUCCESS', last_text = v_text, last_stack = NULL,
                            in_doubt_since = coalesce(k.in_doubt_since, p_now), exhausted = false, workflow = 'open', cause = NULL,
                            failure_group = v_group, row_version = k.row_version + 1
         WHERE k.id = p_id;
        INSERT INTO attempt (message_id, completed_at, attempt, spent, version, in_doubt, verb, tenant, destination, stage, code, text,
                             token)
        VALUES (p_id, p_now, v_parked.attempt, v_parked.spent, v_parked.version, true, 'hold', v_parked.tenant, v_parked.destination,
                v_parked.stage, 'LATE_SUCCESS', v_text, v_parked.token);
        RETURN;
    END IF;
    SELECT p.lane INTO v_lane FROM pending p WHERE p.id = p_id AND p.kept_answer IS NULL;
    IF NOT FOUND OR NOT redrive.try_lane(v_lane) THEN RETURN; END IF;
    SELECT * INTO v_pending FROM pending p WHERE p.id = p_id AND p.kept_answer IS NULL FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN RETURN; END IF;
    DELETE FROM pending p WHERE p.id = p_id;
    v_group := redrive.tally_proven(p_id, v_pending.destination, p_now);
    INSERT INTO parked (id, reason, parked_at, first_failed_at, last_failed_at, tenant, destination, stage, version, level, lane, sequence,
                        attempt, spent, lookups, crashes, error_class, exhausted, halts, in_doubt_since, expires_at, policy_version,
                        last_text, context, failure_group, token)
    VALUES (p_id, 'held', p_now, coalesce(v_pending.first_failed_at, p_now), p_now, v_pending.tenant, v_pending.destination,
            v_pending.stage, v_pending.version, v_pending.level, v_pending.lane, v_pending.sequence, v_pending.attempt, v_pending.spent,
            v_pending.lookups, v_pending.crashes, 'LATE_SUCCESS', false, true, coalesce(v_pending.in_doubt_since, p_now),
            v_pending.expires_at, v_pending.policy_version, v_text, '{}', v_group, v_pending.token);
    INSERT INTO attempt (message_id, completed_at, attempt, spent, version, in_doubt, verb, tenant, destination, stage, code, text, token)
    VALUES (p_id, p_now, v_pending.attempt, v_pending.spent, v_pending.version, true, 'hold', v_pending.tenant, v_pending.destination,
            v_pending.stage, 'LATE_SUCCESS', v_text, v_pending.token);
    IF v_lane IS NOT NULL THEN
        PERFORM redrive.wake_lanes(ARRAY[v_lane], p_now);
    END IF;
END $body$;

-- tally_proven: counts it among the failures of its destination, and says of which group it is.
CREATE OR REPLACE FUNCTION redrive.tally_proven(p_id uuid, p_destination text, p_now timestamptz) RETURNS bytea
LANGUAGE plpgsql SET search_path = redrive, pg_temp AS $body$
DECLARE v_kind  text  := (SELECT m.kind FROM message m WHERE m.id = p_id);
        v_text  text  := 'There is evidence that it was delivered.';  -- without the reference: one group for a destination and kind
        v_group bytea := redrive.failure_fingerprint(p_destination, v_kind, 'LATE_SUCCESS', v_text);
BEGIN
    INSERT INTO failure_tally (fingerprint, at, destination, kind, error_class, sample_text)
    VALUES (v_group, p_now, p_destination, coalesce(v_kind, ''), 'LATE_SUCCESS', v_text);
    RETURN v_group;
END $body$;

-- try_lane: whether the lane, if there is one, is locked by us now.
CREATE OR REPLACE FUNCTION redrive.try_lane(p_lane bigint) RETURNS boolean
LANGUAGE plpgsql SET search_path = redrive, pg_temp AS $body$
BEGIN
    IF p_lane IS NOT NULL THEN
        PERFORM 1 FROM lane x WHERE x.id = p_lane FOR UPDATE SKIP LOCKED;
        RETURN FOUND;
    END IF;
    RETURN true;
END $body$;

-- confirm_proven: a pending or parked message is closed as delivered, on the proof that its caller has; where the destination records its
-- outcomes it waits with the answer kept, so that a relay runs `record`, and is never sent. For a system; it asks for no second person.
-- Answers 'done'; 'busy' where it is in flight, is about to be recorded, or another transaction holds it; or the state that refuses it.
-- Locks: the parked row, the lane, the pending row, each with SKIP LOCKED; then the audit chain.
CREATE OR REPLACE FUNCTION redrive.confirm_proven(p_id uuid, p_actor text, p_reason text, p_reference text, p_now timestamptz)
RETURNS text LANGUAGE plpgsql SET search_path = redrive, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
DECLARE v_parked  parked;
        v_pending pending;
        v_lane    bigint;
        v_records boolean;
        v_kept    json := json_build_object('answer', 'delivered', 'reference', p_reference);
        v_state   text;
BEGIN
    SELECT * INTO v_parked FROM parked k WHERE k.id = p_id AND k.reason IN ('dead', 'held') FOR UPDATE SKIP LOCKED;
    IF FOUND THEN
        IF NOT redrive.try_lane(v_parked.lane) THEN RETURN 'busy'; END IF;
        DELETE FROM parked k WHERE k.id = p_id;
        IF EXISTS (SELECT 1 FROM destination d WHERE d.name = v_parked.destination AND d.has_record) THEN
            PERFORM redrive.pend_again(v_parked, 'confirm', v_parked.stage, NULL, v_kept, p_actor, p_reason, p_now);
        ELSE
            PERFORM redrive.close_parked(v_parked, 'confirm', 'delivered', p_reference, p_actor, p_reason, p_now);
        END IF;
        RETURN 'done';
    END IF;
    SELECT p.lane INTO v_lane FROM pending p WHERE p.id = p_id;
    IF NOT FOUND THEN
        v_state := redrive.refusal(p_id);
        RETURN CASE WHEN v_state IN ('pending', 'leased', 'parked', 'dead', 'held') THEN 'busy' ELSE v_state END;
    ELSIF NOT redrive.try_lane(v_lane) THEN
        RETURN 'busy';
    END IF;
    SELECT * INTO v_pending FROM pending p WHERE p.id = p_id AND p.kept_answer IS NULL FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN RETURN 'busy'; END IF;
    v_records := EXISTS (SELECT 1 FROM destination d WHERE d.name = v_pending.destination AND d.has_record);
    DELETE FROM pending p WHERE p.id = p_id;
    IF v_records THEN
        INSERT INTO pending (id, due_at, lane, sequence, attempt, version, level, tenant, destination, stage, expires_at, policy_version,
                             kept_answer, token)
        VALUES (p_id, p_now, v_pending.lane, v_pending.sequence, v_pending.attempt, v_pending.version, v_pending.level, v_pending.tenant,
                v_pending.destination, v_pending.stage, v_pending.expires_at, v_pending.policy_version, v_kept, v_pending.token);
    END IF;
    INSERT INTO attempt (message_id, completed_at, due_at, attempt, spent, version, in_doubt, verb, tenant, destination, stage, closed,
                         reference, actor, reason, token)
    VALUES (p_id, p_now, CASE WHEN v_records THEN p_now END, v_pending.attempt, v_pending.spent, v_pending.version,
            v_pending.in_doubt_since IS NOT NULL AND NOT v_records, 'confirm', v_pending.tenant, v_pending.destination, v_pending.stage,
            CASE WHEN NOT v_records THEN 'delivered' END, p_reference, p_actor, p_reason, v_pending.token);
    IF v_lane IS NOT NULL THEN
        PERFORM redrive.wake_lanes(ARRAY[v_lane], p_now);
    END IF;
    PERFORM redrive.ring(CASE WHEN v_records THEN ARRAY[v_pending.destination] END, p_now);
    PERFORM redrive.audit(p_actor, 'confirm', p_id::text, p_reason, json_build_object('state', 'pending'),
                          json_build_object('state', CASE WHEN v_records THEN 'pending' ELSE 'delivered' END, 'reference', p_reference),
                          p_now);
    RETURN 'done';
END $body$;
