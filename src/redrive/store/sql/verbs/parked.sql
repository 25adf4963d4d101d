-- redrive: after state
-- The five ways out of `parked`, each an operator's act: requeue (dead), confirm (dead, held), deny (held), repair
-- (unrecorded), discard (any). Each answers 'done', 'not_found', 'in_flight' …: 'done' or the state that refuses it; nothing is
-- raised.
-- What sends money again or gives it up (requeue, deny, discard) answers 'second_person' until another person asks for the same
-- (see needs_second).
-- Locks: the parked row, then inserts, then its lane, then the audit chain.

-- requeue: dead -> pending with a fresh budget, same id, key, sequence and token; at its stage, or at the one asked for.
-- One whose ordering key has gone on without it goes before all that still wait, and only if p_out_of_order says that this is
-- meant; else 'moved_on', and nothing changes (ruling 15).
CREATE OR REPLACE FUNCTION redrive.requeue_1(
    p_id uuid, p_actor text, p_reason text, p_stage text DEFAULT NULL, p_out_of_order boolean DEFAULT false,
    p_now timestamptz DEFAULT NULL
) RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp
    SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $body$
DECLARE
    v_now timestamptz := coalesce(p_now, clock_timestamp());
    v_row parked;
BEGIN
    SELECT * INTO v_row FROM parked k WHERE k.id = p_id AND k.reason = 'dead' FOR UPDATE;
    IF NOT FOUND THEN
        RETURN redrive.refusal(p_id);
    END IF;
    PERFORM redrive.lock_lanes(ARRAY[v_row.lane]);  -- nobody goes out while we look whether somebody has
    IF NOT p_out_of_order AND redrive.gone_out_after(v_row.lane, v_row.sequence) > 0 THEN
        RETURN 'moved_on';
    END IF;
    IF redrive.needs_second(v_row.destination, 'requeue', p_id::text, p_actor, p_reason, v_now) THEN
        RETURN 'second_person';
    END IF;
    v_row := redrive.unpark(p_id, ARRAY['dead']);
    PERFORM redrive.pend_again(v_row, 'requeue', coalesce(p_stage, v_row.stage), v_row.in_doubt_since, NULL, p_actor,
                               p_reason, v_now);
    RETURN 'done';
END
$body$;

-- gone_out_after: how many later messages of the lane were claimed or have ended. Sequences have no gaps, so it is all that
-- were numbered, less those that still wait for their first claim. None went out past a head that has halted its lane since its
-- first attempt (no person has put it back before), also if later ones were cancelled or have expired meanwhile.
CREATE OR REPLACE FUNCTION redrive.gone_out_after(p_lane bigint, p_sequence bigint) RETURNS bigint
LANGUAGE plpgsql STABLE SET search_path = redrive, pg_temp
AS $body$
BEGIN
    IF EXISTS (SELECT 1 FROM parked k
                WHERE k.lane = p_lane AND k.sequence = p_sequence AND k.halts
                  AND NOT EXISTS (SELECT 1 FROM attempt a
                                   WHERE a.message_id = k.id AND a.verb NOT IN ('settle', 'complete', 'hand_back', 'reap'))) THEN
        RETURN 0;
    END IF;
    RETURN coalesce((SELECT s.last_sequence FROM stream s WHERE s.id = p_lane) - p_sequence
                    - (SELECT count(*) FROM pending p
                        WHERE p.lane = p_lane AND p.sequence > p_sequence AND p.attempt = 0), 0);
END
$body$;

-- deny: held -> pending: a person found that it did not happen, so the doubt is gone.
CREATE OR REPLACE FUNCTION redrive.deny_1(p_id uuid, p_actor text, p_reason text, p_now timestamptz DEFAULT NULL)
RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp
    SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $body$
DECLARE
    v_now timestamptz := coalesce(p_now, clock_timestamp());
    v_row parked;
BEGIN
    SELECT * INTO v_row FROM parked k WHERE k.id = p_id AND k.reason = 'held' FOR UPDATE;
    IF NOT FOUND THEN
        RETURN redrive.refusal(p_id);
    END IF;
    IF redrive.needs_second(v_row.destination, 'deny', p_id::text, p_actor, p_reason, v_now) THEN
        RETURN 'second_person';
    END IF;
    v_row := redrive.unpark(p_id, ARRAY['held']);
    PERFORM redrive.pend_again(v_row, 'deny', v_row.stage, NULL, NULL, p_actor, p_reason, v_now);
    RETURN 'done';
END
$body$;

-- confirm: held or dead -> delivered: somebody found that it did happen. Where the destination records its outcomes, the message
-- goes back with the answer kept, so that a relay runs `record`; it is never sent.
CREATE OR REPLACE FUNCTION redrive.confirm_1(
    p_id uuid, p_actor text, p_reason text, p_reference text DEFAULT NULL, p_now timestamptz DEFAULT NULL
) RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp
    SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $body$
DECLARE
    v_now timestamptz := coalesce(p_now, clock_timestamp());
    v_row parked := redrive.unpark(p_id, ARRAY['dead', 'held']);
BEGIN
    IF v_row.id IS NULL THEN
        RETURN redrive.refusal(p_id);
    END IF;
    IF EXISTS (SELECT 1 FROM destination d WHERE d.name = v_row.destination AND d.has_record) THEN
        PERFORM redrive.pend_again(v_row, 'confirm', v_row.stage, NULL,
                                   json_build_object('answer', 'delivered', 'reference', p_reference), p_actor, p_reason,
                                   v_now);
    ELSE
        PERFORM redrive.close_parked(v_row, 'confirm', 'delivered', p_reference, p_actor, p_reason, v_now);
    END IF;
    RETURN 'done';
END
$body$;

-- repair: unrecorded -> pending with the answer kept: the next claim runs `record` with it, and never sends.
CREATE OR REPLACE FUNCTION redrive.repair_1(p_id uuid, p_actor text, p_reason text, p_now timestamptz DEFAULT NULL)
RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp
    SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $body$
DECLARE
    v_now timestamptz := coalesce(p_now, clock_timestamp());
    v_row parked := redrive.unpark(p_id, ARRAY['unrecorded']);
BEGIN
    IF v_row.id IS NULL THEN
        RETURN redrive.refusal(p_id);
    END IF;
    PERFORM redrive.pend_again(v_row, 'repair', v_row.stage, v_row.in_doubt_since, v_row.kept_answer, p_actor, p_reason,
                               v_now);
    RETURN 'done';
END
$body$;

-- discard: parked -> closed, whatever the reason: nobody will send it or record it any more.
CREATE OR REPLACE FUNCTION redrive.discard_1(p_id uuid, p_actor text, p_reason text, p_now timestamptz DEFAULT NULL)
RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp
    SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $body$
DECLARE
    v_now         timestamptz := coalesce(p_now, clock_timestamp());
    v_destination text;
BEGIN
    SELECT k.destination INTO v_destination FROM parked k WHERE k.id = p_id FOR UPDATE;
    IF NOT FOUND THEN
        RETURN redrive.refusal(p_id);
    END IF;
    IF redrive.needs_second(v_destination, 'discard', p_id::text, p_actor, p_reason, v_now) THEN
        RETURN 'second_person';
    END IF;
    RETURN redrive.give_up(p_id, p_actor, p_reason, v_now);
END
$body$;

-- give_up: discard without asking for a second person: for a system that has its own proof that nothing is lost by it.
CREATE OR REPLACE FUNCTION redrive.give_up(p_id uuid, p_actor text, p_reason text, p_now timestamptz)
RETURNS text LANGUAGE plpgsql SET search_path = redrive, pg_temp
AS $body$
DECLARE
    v_row parked := redrive.unpark(p_id, ARRAY['dead', 'held', 'unrecorded']);
BEGIN
    IF v_row.id IS NULL THEN
        RETURN redrive.refusal(p_id);
    END IF;
    PERFORM redrive.close_parked(v_row, 'discard', 'discarded', NULL, p_actor, p_reason, p_now);
    RETURN 'done';
END
$body$;

-- needs_second: whether another person has to ask for the same act on the same subject before it is done: where the
-- destination moves money, unless somebody else did within a day. Whoever asks first is kept, and audited.
CREATE OR REPLACE FUNCTION redrive.needs_second(
    p_destination text, p_act text, p_subject text, p_actor text, p_reason text, p_now timestamptz
) RETURNS boolean LANGUAGE plpgsql SET search_path = redrive, pg_temp
AS $body$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM destination d WHERE d.name = p_destination AND d.money) THEN
        RETURN false;
    END IF;
    DELETE FROM proposal o
     WHERE o.act = p_act AND o.subject = p_subject AND o.asked_by <> p_actor AND o.asked_at > p_now - interval '1 day';
    IF FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO proposal (act, subject, asked_by, asked_at, reason) VALUES (p_act, p_subject, p_actor, p_now, p_reason)
    ON CONFLICT (act, subject) DO UPDATE SET asked_by = excluded.asked_by, asked_at = excluded.asked_at,
                                             reason = excluded.reason;
    PERFORM redrive.audit(p_actor, 'propose', p_subject, p_reason, NULL, json_build_object('act', p_act), p_now);
    RETURN true;
END
$body$;

-- unpark: the parked row, removed; no row where it is not parked for one of these reasons.
CREATE OR REPLACE FUNCTION redrive.unpark(p_id uuid, p_reasons text[]) RETURNS redrive.parked
LANGUAGE plpgsql SET search_path = redrive, pg_temp
AS $body$
DECLARE
    v_row parked;
BEGIN
    DELETE FROM parked k WHERE k.id = p_id AND k.reason = ANY (p_reasons) RETURNING k.* INTO v_row;
    RETURN v_row;
END
$body$;

-- refusal: why an act does not fit: the state of the message, with the reason where it is parked.
CREATE OR REPLACE FUNCTION redrive.refusal(p_id uuid) RETURNS text LANGUAGE sql STABLE
AS $body$
    SELECT coalesce((SELECT k.reason FROM redrive.parked k WHERE k.id = p_id), redrive.state_of(p_id), 'not_found')
$body$;

CREATE OR REPLACE FUNCTION redrive.pend_again(
    p_row redrive.parked, p_verb text, p_stage text, p_in_doubt_since timestamptz, p_kept_answer json, p_actor text,
    p_reason text, p_now timestamptz
) RETURNS void LANGUAGE plpgsql SET search_path = redrive, pg_temp
AS $body$
DECLARE
    v_token uuid := CASE WHEN p_stage <> p_row.stage THEN redrive.token_for(p_row.id, p_row.version, p_stage) ELSE p_row.token END;
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
END
$body$;

CREATE OR REPLACE FUNCTION redrive.close_parked(
    p_row redrive.parked, p_verb text, p_closed text, p_reference text, p_actor text, p_reason text, p_now timestamptz
) RETURNS void LANGUAGE plpgsql SET search_path = redrive, pg_temp
AS $body$
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
END
$body$;
