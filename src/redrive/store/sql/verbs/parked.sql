-- redrive: after state
-- The five ways out of `parked`, each an operator's act: requeue (dead), confirm (dead, held), deny (held), repair
-- (unrecorded), discard (any). Each answers 'done', 'not_found', 'in_flight' …: 'done' or the state that refuses it; nothing is
-- raised.
-- What moves money, and every act on it but repair: 'second_person' until another person asks for the same, and 'approver' where that
-- person may not approve (see second_person). 'evidence': something says that it was delivered, so it can only be confirmed (evidence.sql).
-- Locks: the parked row, then inserts, then its lane, then the audit chain.

-- requeue: dead -> pending with a fresh budget, same id, key, sequence and token; at its stage, or at the one asked for. Another stage has
-- another token, so what moves money has one stage: 'one_stage'.
-- One whose ordering key has gone on without it goes before all that still wait, and only if p_out_of_order says that this is
-- meant; else 'moved_on', and nothing changes.
CREATE OR REPLACE FUNCTION redrive.requeue_1(
    p_id uuid, p_actor text, p_reason text, p_stage text DEFAULT NULL, p_out_of_order boolean DEFAULT false,
    p_now timestamptz DEFAULT NULL
) RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
DECLARE v_now    timestamptz := coalesce(p_now, clock_timestamp());
        v_row    parked := redrive.parked_for_act(p_id);
        v_second text;
BEGIN
    IF redrive.is_proven(v_row) THEN
        RETURN 'evidence';
    ELSIF v_row.reason IS DISTINCT FROM 'dead' THEN
        RETURN redrive.refusal(p_id);
    ELSIF p_stage <> v_row.stage AND redrive.moves_money(v_row.destination) THEN
        RETURN 'one_stage';
    END IF;
    PERFORM redrive.lock_lanes(ARRAY[v_row.lane]);  -- no later message goes out while we look whether one has
    IF NOT p_out_of_order AND redrive.gone_out_after(v_row.lane, v_row.sequence) > 0 THEN RETURN 'moved_on'; END IF;
    v_second := redrive.second_person(v_row.destination, 'requeue', p_id::text, p_actor, p_reason, redrive.incident(v_row), v_now,
                                      json_build_object('out_of_order', p_out_of_order));
    IF v_second IS NOT NULL THEN RETURN v_second; END IF;
    v_row := redrive.unpark(p_id, ARRAY['dead']);
    PERFORM redrive.pend_again(v_row, 'requeue', coalesce(p_stage, v_row.stage), v_row.in_doubt_since, NULL, p_actor,
                               p_reason, v_now);
    RETURN 'done';
END $body$;

-- gone_out_after: how many later messages of the lane were claimed or have ended. Sequences have no gaps, so it is all that
-- were numbered, less those that still wait for their first claim. None went out past a head that has halted its lane since its
-- first attempt (no person has put it back before; an edit leaves it parked), also if later ones were cancelled or have expired
-- meanwhile.
CREATE OR REPLACE FUNCTION redrive.gone_out_after(p_lane bigint, p_sequence bigint) RETURNS bigint
LANGUAGE plpgsql STABLE SET search_path = redrive, pg_temp AS $body$
BEGIN
    IF EXISTS (SELECT 1 FROM parked k
                WHERE k.lane = p_lane AND k.sequence = p_sequence AND k.halts
                  AND NOT EXISTS (SELECT 1 FROM attempt a
                                   WHERE a.message_id = k.id AND a.verb NOT IN ('settle', 'complete', 'hand_back', 'reap', 'edit'))) THEN
        RETURN 0;
    END IF;
    RETURN coalesce((SELECT s.last_sequence FROM stream s WHERE s.id = p_lane) - p_sequence
                    - (SELECT count(*) FROM pending p
                        WHERE p.lane = p_lane AND p.sequence > p_sequence AND p.attempt = 0), 0);
END $body$;

-- deny: held -> pending: a person found that it did not happen. Where the destination can be asked the doubt stays, so that it is asked
-- before anything is sent; elsewhere the doubt is gone.
CREATE OR REPLACE FUNCTION redrive.deny_1(p_id uuid, p_actor text, p_reason text, p_now timestamptz DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
DECLARE v_now    timestamptz := coalesce(p_now, clock_timestamp());
        v_row    parked := redrive.parked_for_act(p_id);
        v_second text;
        v_doubt  timestamptz;
BEGIN
    IF redrive.is_proven(v_row) THEN
        RETURN 'evidence';
    ELSIF v_row.reason IS DISTINCT FROM 'held' THEN
        RETURN redrive.refusal(p_id);
    END IF;
    v_second := redrive.second_person(v_row.destination, 'deny', p_id::text, p_actor, p_reason, redrive.incident(v_row), v_now);
    IF v_second IS NOT NULL THEN RETURN v_second; END IF;
    v_row := redrive.unpark(p_id, ARRAY['held']);
    SELECT coalesce(v_row.in_doubt_since, v_now) INTO v_doubt
      FROM destination d WHERE d.name = v_row.destination AND d.in_doubt = 'lookup';
    PERFORM redrive.pend_again(v_row, 'deny', v_row.stage, v_doubt, NULL, p_actor, p_reason, v_now);
    RETURN 'done';
END $body$;

-- confirm: held or dead -> delivered: an operator found that it did happen. Where the destination records its outcomes, the message
-- goes back with the answer kept, so that a relay runs `record`; it is never sent.
CREATE OR REPLACE FUNCTION redrive.confirm_1(
    p_id uuid, p_actor text, p_reason text, p_reference text DEFAULT NULL, p_now timestamptz DEFAULT NULL
) RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
DECLARE v_now    timestamptz := coalesce(p_now, clock_timestamp());
        v_row    parked := redrive.parked_for_act(p_id);
        v_second text;
BEGIN
    IF v_row.reason IS NULL OR v_row.reason NOT IN ('dead', 'held') THEN RETURN redrive.refusal(p_id); END IF;
    v_second := redrive.second_person(v_row.destination, 'confirm', p_id::text, p_actor, p_reason, redrive.incident(v_row), v_now,
                                      json_build_object('reference', p_reference));
    IF v_second IS NOT NULL THEN RETURN v_second; END IF;
    v_row := redrive.unpark(p_id, ARRAY['dead', 'held']);
    IF EXISTS (SELECT 1 FROM destination d WHERE d.name = v_row.destination AND d.has_record) THEN
        PERFORM redrive.pend_again(v_row, 'confirm', v_row.stage, NULL,
                                   json_build_object('answer', 'delivered', 'reference', p_reference), p_actor, p_reason,
                                   v_now);
    ELSE
        PERFORM redrive.close_parked(v_row, 'confirm', 'delivered', p_reference, p_actor, p_reason, v_now);
    END IF;
    RETURN 'done';
END $body$;

-- repair: unrecorded -> pending with the answer kept: the next claim runs `record` with it, and never sends.
CREATE OR REPLACE FUNCTION redrive.repair_1(p_id uuid, p_actor text, p_reason text, p_now timestamptz DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
DECLARE v_now timestamptz := coalesce(p_now, clock_timestamp());
        v_row parked := redrive.unpark(p_id, ARRAY['unrecorded']);
BEGIN
    IF v_row.id IS NULL THEN RETURN redrive.refusal(p_id); END IF;
    PERFORM redrive.pend_again(v_row, 'repair', v_row.stage, v_row.in_doubt_since, v_row.kept_answer, p_actor, p_reason,
                               v_now);
    RETURN 'done';
END $body$;

-- discard: parked -> closed, whatever the reason: it is neither sent nor recorded any more.
CREATE OR REPLACE FUNCTION redrive.discard_1(p_id uuid, p_actor text, p_reason text, p_now timestamptz DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
DECLARE v_now    timestamptz := coalesce(p_now, clock_timestamp());
        v_row    parked := redrive.parked_for_act(p_id);
        v_second text;
BEGIN
    IF redrive.is_proven(v_row) THEN
        RETURN 'evidence';
    ELSIF v_row.id IS NULL THEN
        RETURN redrive.refusal(p_id);
    END IF;
    v_second := redrive.second_person(v_row.destination, 'discard', p_id::text, p_actor, p_reason, redrive.incident(v_row), v_now);
    IF v_second IS NOT NULL THEN RETURN v_second; END IF;
    RETURN redrive.give_up(p_id, p_actor, p_reason, v_now);
END $body$;

-- give_up: discard without asking for a second person: for a system that has its own proof that nothing is lost by it.
CREATE OR REPLACE FUNCTION redrive.give_up(p_id uuid, p_actor text, p_reason text, p_now timestamptz) RETURNS text
LANGUAGE plpgsql SET search_path = redrive, pg_temp AS $body$
DECLARE v_row parked := redrive.unpark(p_id, ARRAY['dead', 'held', 'unrecorded']);
BEGIN
    IF v_row.id IS NULL THEN RETURN redrive.refusal(p_id); END IF;
    PERFORM redrive.close_parked(v_row, 'discard', 'discarded', NULL, p_actor, p_reason, p_now);
    RETURN 'done';
END $body$;

-- parked_for_act: the parked row, locked; all NULL where the message is not parked.
CREATE OR REPLACE FUNCTION redrive.parked_for_act(p_id uuid) RETURNS redrive.parked
LANGUAGE plpgsql SET search_path = redrive, pg_temp AS $body$
DECLARE v_row parked;
BEGIN
    SELECT * INTO v_row FROM parked k WHERE k.id = p_id FOR UPDATE;
    RETURN v_row;
END $body$;

-- is_proven: whether it is dead or held and something says that it was delivered. What is unrecorded has its answer, and is never sent.
CREATE OR REPLACE FUNCTION redrive.is_proven(p_row redrive.parked) RETURNS boolean
LANGUAGE plpgsql STABLE AS $body$
BEGIN
    RETURN coalesce(p_row.reason IN ('dead', 'held') AND redrive.has_evidence(p_row.id), false);
END $body$;

CREATE OR REPLACE FUNCTION redrive.moves_money(p_destination text) RETURNS boolean
LANGUAGE plpgsql STABLE AS $body$
BEGIN
    RETURN EXISTS (SELECT 1 FROM redrive.destination d WHERE d.name = p_destination AND d.money);
END $body$;

-- incident: what a proposal is about beside its act and options: this version of the message, parked at this moment after this attempt, as
-- it is now. Whatever changes any of it (an edit, a replay, another death, a step of the desk) makes it another one.
CREATE OR REPLACE FUNCTION redrive.incident(p_row redrive.parked) RETURNS json
LANGUAGE sql STABLE AS $body$
    SELECT json_build_array(p_row.attempt, extract(epoch FROM p_row.parked_at), p_row.row_version, p_row.version)
$body$;

-- second_person: NULL where an act may be done; else why not yet. Where the destination moves money two people ask for the same act on the
-- same thing within a day: act, subject, incident, options and, for an edit, the new payload. The first one is kept, and audited:
-- 'second_person'. The second one must be an approver, judged by the role that calls, in this transaction: else 'approver', and the
-- proposal stays as it is. Another binding replaces the proposal, and its actor counts as the first person.
-- p_details: kept for the second person to see, and no part of what is bound.
-- Locks: the proposal, then the audit chain. Callers hold the row of their subject, so that two people are one after the other.
CREATE OR REPLACE FUNCTION redrive.second_person(
    p_destination text, p_act text, p_subject text, p_actor text, p_reason text, p_incident json, p_now timestamptz,
    p_options json DEFAULT NULL, p_details json DEFAULT NULL, p_content_type text DEFAULT NULL, p_bytes bytea DEFAULT NULL
) RETURNS text LANGUAGE plpgsql SET search_path = redrive, pg_temp AS $body$
DECLARE v_binding bytea;
        v_by      text;
BEGIN
    IF NOT redrive.moves_money(p_destination) THEN RETURN NULL; END IF;
    v_binding := sha256(convert_to(json_build_array(p_act, p_subject, p_incident, p_options, p_content_type,
                                                    encode(sha256(p_bytes), 'hex'))::text, 'UTF8'));
    SELECT o.asked_by INTO v_by FROM proposal o
     WHERE o.act = p_act AND o.subject = p_subject AND o.asked_by <> p_actor AND o.asked_at > p_now - interval '1 day'
       AND o.binding = v_binding FOR UPDATE;
    IF FOUND AND NOT redrive.may_approve() THEN
        RETURN 'approver';
    ELSIF FOUND THEN
        DELETE FROM proposal o WHERE o.subject = p_subject;  -- whatever else was proposed for it: it is about to change
        RETURN NULL;
    END IF;
    DELETE FROM proposal x WHERE x.ctid = ANY (ARRAY(  -- nothing proposed is kept for longer than it counts, payloads least of all
        SELECT o.ctid FROM proposal o WHERE o.asked_at <= p_now - interval '1 day' FOR UPDATE SKIP LOCKED));
    INSERT INTO proposal (act, subject, asked_by, asked_at, reason, binding, options, content_type, bytes)
    VALUES (p_act, p_subject, p_actor, p_now, p_reason, v_binding, coalesce(p_details, p_options), p_content_type, p_bytes)
    ON CONFLICT (act, subject) DO UPDATE
       SET asked_by = excluded.asked_by, asked_at = excluded.asked_at, reason = excluded.reason, binding = excluded.binding,
           options = excluded.options, content_type = excluded.content_type, bytes = excluded.bytes;
    PERFORM redrive.audit(p_actor, 'propose', p_subject, p_reason, NULL,
                          json_build_object('act', p_act, 'options', coalesce(p_details, p_options),
                                            'sha256', encode(sha256(p_bytes), 'hex')), p_now);
    RETURN 'second_person';
END $body$;


-- may_approve: whether the role that calls is an approver. That is the role which a session has taken (as the console does for each
-- person), else the login; inside a verb the current user is the owner.
CREATE OR REPLACE FUNCTION redrive.may_approve() RETURNS boolean
LANGUAGE plpgsql STABLE AS $body$
BEGIN
    RETURN pg_has_role(redrive.invoking_role(), 'redrive_approver', 'member');
END $body$;

CREATE OR REPLACE FUNCTION redrive.invoking_role() RETURNS name
LANGUAGE plpgsql STABLE AS $body$
BEGIN
    RETURN coalesce(nullif(current_setting('role'), 'none'), session_user);
END $body$;

-- unpark: the parked row, removed; no row where it is not parked for one of these reasons.
CREATE OR REPLACE FUNCTION redrive.unpark(p_id uuid, p_reasons text[]) RETURNS redrive.parked
LANGUAGE plpgsql SET search_path = redrive, pg_temp AS $body$
DECLARE v_row parked;
BEGIN
    DELETE FROM parked k WHERE k.id = p_id AND k.reason = ANY (p_reasons) RETURNING k.* INTO v_row;
    RETURN v_row;
END $body$;

-- refusal: why an act does not fit: the state of the message, with the reason where it is parked.
CREATE OR REPLACE FUNCTION redrive.refusal(p_id uuid) RETURNS text
LANGUAGE sql STABLE AS $body$
    SELECT coalesce((SELECT k.reason FROM redrive.parked k WHERE k.id = p_id), redrive.state_of(p_id), 'not_found')
$body$;

CREATE OR REPLACE FUNCTION redrive.pend_again(
    p_row redrive.parked, p_verb text, p_stage text, p_in_doubt_since timestamptz, p_kept_answer json, p_actor text,
    p_reason text, p_now timestamptz
) RETURNS void LANGUAGE plpgsql SET search_path = redrive, pg_temp AS $body$
DECLARE v_token uuid := CASE WHEN p_stage <> p_row.stage THEN redrive.token_for(p_row.id, p_row.version, p_stage) ELSE p_row.token END;
BEGIN
    INSERT INTO pending (id, due_at, lane, sequence, attempt, version, level, tenant, destination, stage, expires_at,
                         in_doubt_since, policy_version, kept_answer, token)
    VALUES (p_row.id, p_now, p_row.lane, p_row.sequence, p_row.attempt, p_row.version, p_row.level, p_row.tenant,
            p_row.destination, p_stage, p_row.expires_at, p_in_doubt_since, p_row.policy_version, p_kept_answer, v_token);
    INSERT INTO attempt (message_id, completed_at, due_at, attempt, spent, version, in_doubt, verb, tenant, destination,
                         stage, actor, reason, token)
    VALUES (p_row.id, p_now, p_now, p_row.attempt, p_row.spent, p_row.version, p_in_doubt_since IS NOT NULL, p_verb,
            p_row.tenant, p_row.destination, p_stage, p_actor, p_reason, v_token);
    IF p_row.lane IS NOT NULL THEN
        PERFORM redrive.release_lanes(ARRAY[p_row.lane], p_now);
    END IF;
    PERFORM redrive.ring(ARRAY[p_row.destination], p_now);
    PERFORM redrive.audit(p_actor, p_verb, p_row.id::text, p_reason,
                          json_build_object('state', 'parked', 'reason', p_row.reason, 'stage', p_row.stage),
                          json_build_object('state', 'pending', 'stage', p_stage), p_now);
END $body$;

CREATE OR REPLACE FUNCTION redrive.close_parked(
    p_row redrive.parked, p_verb text, p_closed text, p_reference text, p_actor text, p_reason text, p_now timestamptz
) RETURNS void LANGUAGE plpgsql SET search_path = redrive, pg_temp AS $body$
BEGIN
    INSERT INTO attempt (message_id, completed_at, attempt, spent, version, in_doubt, verb, tenant, destination, stage,
                         closed, reference, actor, reason, token)
    VALUES (p_row.id, p_now, p_row.attempt, p_row.spent, p_row.version, p_row.in_doubt_since IS NOT NULL, p_verb,
            p_row.tenant, p_row.destination, p_row.stage, p_closed, p_reference, p_actor, p_reason, p_row.token);
    IF p_row.lane IS NOT NULL THEN
        PERFORM redrive.release_lanes(ARRAY[p_row.lane], p_now);
        PERFORM redrive.ring(NULL, p_now);
    END IF;
    PERFORM redrive.audit(p_actor, p_verb, p_row.id::text, p_reason,
                          json_build_object('state', 'parked', 'reason', p_row.reason),
                          json_build_object('state', p_closed, 'reference', p_reference), p_now);
END $body$;
