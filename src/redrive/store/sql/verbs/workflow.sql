-- redrive: after parked
-- The steps of a person with dead letters: triage (what was the cause), remediate (what was done about it), edit (a new version
-- of the payload), validate (a relay looks whether it could be sent), ignore. Then a replay sends them (replay.sql). Any change
-- takes a letter back to the step that it came from: what was validated is validated as it is.
-- Each takes many ids and answers for each: 'done', or why nothing was done: 'not_found', the state, or the step that it is at.
-- Locks: parked rows in id order, then the audit chain.

-- lock_parked: all rows of a step before its first audit, and which they are: the chain is locked until the end, and a
-- transaction that waited for a row behind it could wait for another one that waits for the chain. What is parked later is not of the step.
CREATE OR REPLACE FUNCTION redrive.lock_parked(p_ids uuid[]) RETURNS uuid[]
LANGUAGE plpgsql AS $body$
BEGIN
    RETURN ARRAY(SELECT k.id FROM redrive.parked k WHERE k.id = ANY (p_ids) ORDER BY k.id FOR UPDATE);
END $body$;

-- step_dead: the one write of a step, for those of the rows that are at one of these steps.
CREATE OR REPLACE FUNCTION redrive.step_dead(
    p_ids uuid[], p_from text[], p_act text, p_to text, p_cause text, p_ticket text, p_evidence text, p_owner text, p_actor text,
    p_reason text, p_now timestamptz
) RETURNS TABLE (id uuid, result text) LANGUAGE plpgsql SET search_path = redrive, pg_temp AS $body$
#variable_conflict use_column
DECLARE v_locked uuid[];
        v_id     uuid;
        v_before parked;
        v_after  parked;
BEGIN
    v_locked := redrive.lock_parked(p_ids);
    FOR v_id IN SELECT DISTINCT u.id FROM unnest(p_ids) AS u(id) ORDER BY u.id LOOP
        SELECT * INTO v_before FROM parked k WHERE k.id = v_id AND k.id = ANY (v_locked) AND k.reason = 'dead';
        IF NOT FOUND THEN
            RETURN QUERY SELECT v_id, redrive.refusal(v_id);
        ELSIF v_before.workflow <> ALL (p_from) THEN
            RETURN QUERY SELECT v_id, v_before.workflow;
        ELSE
            UPDATE parked k
               SET workflow = p_to, cause = coalesce(p_cause, k.cause), ticket = coalesce(p_ticket, k.ticket),
                   evidence = coalesce(p_evidence, k.evidence), owner = coalesce(p_owner, k.owner), note = p_reason,
                   row_version = k.row_version + 1
             WHERE k.id = v_id RETURNING k.* INTO v_after;
            PERFORM redrive.audit(p_actor, p_act, v_id::text, p_reason, redrive.workflow_json(v_before),
                                  redrive.workflow_json(v_after), p_now);
            RETURN QUERY SELECT v_id, 'done';
        END IF;
    END LOOP;
END $body$;

CREATE OR REPLACE FUNCTION redrive.workflow_json(p_row redrive.parked) RETURNS json
LANGUAGE sql STABLE AS $body$
    SELECT json_build_object('workflow', p_row.workflow, 'cause', p_row.cause, 'ticket', p_row.ticket,
                             'evidence', p_row.evidence, 'owner', p_row.owner, 'version', p_row.version)
$body$;

-- triage: dead -> triaged, with its cause: transient, data, auth_config or code_defect. Again at any step, if it was wrong.
CREATE OR REPLACE FUNCTION redrive.triage_1(
    p_ids uuid[], p_cause text, p_actor text, p_reason text, p_owner text DEFAULT NULL, p_now timestamptz DEFAULT NULL
) RETURNS TABLE (id uuid, result text) LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
BEGIN
    RETURN QUERY SELECT * FROM redrive.step_dead(
        p_ids, ARRAY['open', 'triaged', 'remediated', 'validated', 'ignored'], 'triage', 'triaged', p_cause, NULL, NULL,
        p_owner, p_actor, p_reason, coalesce(p_now, clock_timestamp()));
END $body$;

-- remediate: triaged -> remediated: what was done about the cause (p_evidence), or where it is written down (p_ticket).
CREATE OR REPLACE FUNCTION redrive.remediate_1(
    p_ids uuid[], p_actor text, p_reason text, p_evidence text DEFAULT NULL, p_ticket text DEFAULT NULL,
    p_now timestamptz DEFAULT NULL
) RETURNS TABLE (id uuid, result text) LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
BEGIN
    RETURN QUERY SELECT * FROM redrive.step_dead(
        p_ids, ARRAY['triaged', 'remediated', 'validated'], 'remediate', 'remediated', NULL, p_ticket, p_evidence, NULL,
        p_actor, p_reason, coalesce(p_now, clock_timestamp()));
END $body$;

-- ignore: it stays parked and needs no work. Triage takes it back.
CREATE OR REPLACE FUNCTION redrive.ignore_1(p_ids uuid[], p_actor text, p_reason text, p_now timestamptz DEFAULT NULL)
RETURNS TABLE (id uuid, result text) LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
BEGIN
    RETURN QUERY SELECT * FROM redrive.step_dead(
        p_ids, ARRAY['open', 'triaged', 'remediated', 'validated'], 'ignore', 'ignored', NULL, NULL, NULL, NULL, p_actor,
        p_reason, coalesce(p_now, clock_timestamp()));
END $body$;

-- edit: a new version of a dead letter's payload, insert-only, with a token of its own. Only where it is certain that no
-- earlier version had an effect: not in doubt. p_row_version: what the editor saw; 'changed' if it moved since.
-- p_paths: which places were changed; the audit keeps them and the checksums, never the data.
-- Where it moves money the first person's payload is kept in the proposal, and the second person asks for the very same bytes.
CREATE OR REPLACE FUNCTION redrive.edit_1(
    p_id uuid, p_row_version integer, p_bytes bytea, p_content_type text, p_paths json, p_actor text, p_reason text,
    p_now timestamptz DEFAULT NULL
) RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
DECLARE v_now    timestamptz := coalesce(p_now, clock_timestamp());
        v_before parked := redrive.parked_for_act(p_id);
        v_sha256 bytea := sha256(p_bytes);
        v_second text;
BEGIN
    IF redrive.is_proven(v_before) THEN
        RETURN 'evidence';
    ELSIF v_before.reason IS DISTINCT FROM 'dead' THEN
        RETURN redrive.refusal(p_id);
    ELSIF v_before.workflow NOT IN ('triaged', 'remediated', 'validated') THEN
        RETURN v_before.workflow;
    ELSIF v_before.in_doubt_since IS NOT NULL THEN
        RETURN 'in_doubt';
    ELSIF v_before.row_version <> p_row_version THEN
        RETURN 'changed';
    END IF;
    v_second := redrive.second_person(v_before.destination, 'edit', p_id::text, p_actor, p_reason, redrive.incident(v_before), v_now,
                                      p_details => json_build_object('paths', p_paths), p_content_type => p_content_type,
                                      p_bytes => p_bytes);
    IF v_second IS NOT NULL THEN RETURN v_second; END IF;
    INSERT INTO body (message_id, version, content_type, bytes, sha256, created_at, created_by)
    VALUES (p_id, v_before.version + 1, p_content_type, p_bytes, v_sha256, v_now, p_actor);
    UPDATE parked k SET version = k.version + 1, token = redrive.token_for(p_id, k.version + 1, k.stage), workflow = 'remediated', edited = true, note = p_reason,
                        row_version = k.row_version + 1 WHERE k.id = p_id;
    INSERT INTO attempt (message_id, completed_at, attempt, spent, version, verb, tenant, destination, stage, actor, reason, token)
    VALUES (p_id, v_now, v_before.attempt, v_before.spent, v_before.version + 1, 'edit', v_before.tenant,
            v_before.destination, v_before.stage, p_actor, p_reason,
            redrive.token_for(p_id, v_before.version + 1, v_before.stage));
    PERFORM redrive.audit(p_actor, 'edit', p_id::text, p_reason, redrive.workflow_json(v_before),
                          json_build_object('workflow', 'remediated', 'version', v_before.version + 1,
                                            'sha256', encode(v_sha256, 'hex'), 'paths', p_paths), v_now);
    RETURN 'done';
END $body$;

-- lacks_evidence: whether what the cause needs is missing (G-16): transient, auth_config and code_defect what was seen or done;
-- data a new version of the payload, or the ticket by which the data were corrected elsewhere.
CREATE OR REPLACE FUNCTION redrive.lacks_evidence(p_row redrive.parked) RETURNS boolean
LANGUAGE sql STABLE AS $body$
    SELECT CASE p_row.cause WHEN 'data' THEN NOT p_row.edited AND coalesce(p_row.ticket, '') = ''
                            ELSE coalesce(p_row.evidence, '') = '' END
$body$;

-- validate: ask relays whether these dead letters could be sent: `validate` of the transport, and `lookup` for what is in
-- doubt. Answers 'asked' for each, or 'no_evidence', the step that it is at, or its state.
CREATE OR REPLACE FUNCTION redrive.validate_1(p_ids uuid[], p_actor text, p_reason text, p_now timestamptz DEFAULT NULL)
RETURNS TABLE (id uuid, result text) LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
#variable_conflict use_column
DECLARE v_now    timestamptz := coalesce(p_now, clock_timestamp());
        v_locked uuid[];
        v_id     uuid;
        v_row    parked;
BEGIN
    v_locked := redrive.lock_parked(p_ids);
    FOR v_id IN SELECT DISTINCT u.id FROM unnest(p_ids) AS u(id) ORDER BY u.id LOOP
        SELECT * INTO v_row FROM parked k WHERE k.id = v_id AND k.id = ANY (v_locked) AND k.reason = 'dead';
        IF NOT FOUND THEN
            RETURN QUERY SELECT v_id, redrive.refusal(v_id);
        ELSIF v_row.workflow NOT IN ('remediated', 'validated') THEN
            RETURN QUERY SELECT v_id, v_row.workflow;
        ELSIF redrive.lacks_evidence(v_row) THEN
            RETURN QUERY SELECT v_id, 'no_evidence';
        ELSE
            INSERT INTO request (destination, kind, message_id, row_version, asked_at, asked_by)
            VALUES (v_row.destination, 'validate', v_id, v_row.row_version, v_now, p_actor);
            PERFORM redrive.audit(p_actor, 'validate', v_id::text, p_reason, redrive.workflow_json(v_row), NULL, v_now);
            RETURN QUERY SELECT v_id, 'asked';
        END IF;
    END LOOP;
END $body$;

-- take_requests: what people want to know of these destinations, with the messages as an attempt would see them. A worker
-- that does not answer within p_hold_seconds is taken for dead; one that took two relays down is answered for them.
-- Locks: request rows with SKIP LOCKED. Relies on: request_open, the primary keys of parked, message and body.
-- p_knows_tokens: as of claim_1.
CREATE OR REPLACE FUNCTION redrive.take_requests_1(
    p_worker uuid, p_destinations text[], p_limit integer, p_hold_seconds float8, p_now timestamptz DEFAULT NULL,
    p_knows_tokens boolean DEFAULT false
) RETURNS TABLE (
    request_id bigint, id uuid, attempt integer, destination text, tenant text, kind text, key text, body bytea,
    content_type text, stage text, version integer, spent integer, lookups integer, crashes integer, claimed_at timestamptz,
    created_at timestamptz, headers json, order_by text, sequence bigint, in_doubt_since timestamptz, down_since timestamptz,
    first_failed_at timestamptz, expired boolean, cancel_requested boolean, kept_answer json, earlier json, level smallint,
    probe boolean, refusal text, token uuid, token_used_since timestamptz, has_evidence boolean
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
#variable_conflict use_column
DECLARE v_now   timestamptz := coalesce(p_now, clock_timestamp());
        v_taken bigint[];
BEGIN
    v_taken := ARRAY(
        SELECT q.id FROM request q
         WHERE q.answered_at IS NULL AND q.destination = ANY (p_destinations)
           AND (q.taken_until IS NULL OR q.taken_until < v_now)
           AND (p_knows_tokens OR NOT EXISTS (SELECT 1 FROM destination d WHERE d.name = q.destination AND d.money))
         ORDER BY q.destination, q.id LIMIT p_limit FOR UPDATE SKIP LOCKED);
    IF v_taken = '{}' THEN RETURN; END IF;
    UPDATE request q
       SET tries = q.tries + 1, worker = p_worker, taken_until = v_now + make_interval(secs => p_hold_seconds),
           answered_at = CASE WHEN q.tries >= 2 OR k.id IS NULL OR NOT m.is_there THEN v_now END,
           answer = CASE WHEN q.tries >= 2 THEN '{"valid": false, "code": "CRASHED"}'::json
                         WHEN k.id IS NULL THEN '{"valid": false, "code": "CHANGED"}'::json
                         WHEN NOT m.is_there THEN '{"valid": false, "code": "MESSAGE_GONE"}'::json END
      FROM unnest(v_taken) AS t(id)
     CROSS JOIN LATERAL (SELECT (SELECT p.id FROM request r JOIN parked p ON p.id = r.message_id
                                  WHERE r.id = t.id AND p.row_version = r.row_version) AS id) k
     CROSS JOIN LATERAL (SELECT EXISTS (SELECT 1 FROM request r JOIN message x ON x.id = r.message_id WHERE r.id = t.id) AS is_there) m
     WHERE q.id = t.id;
    RETURN QUERY
    SELECT q.id, k.id, k.attempt, k.destination, k.tenant, m.kind, m.key, coalesce(b.bytes, m.body),
           coalesce(b.content_type, m.content_type), k.stage, k.version, k.spent, k.lookups, k.crashes, v_now, m.created_at,
           m.headers, m.order_by, k.sequence, k.in_doubt_since, NULL::timestamptz, k.first_failed_at,
           coalesce(k.expires_at <= v_now, false), false, k.kept_answer, redrive.earlier_attempts(k.id), k.level, false, NULL::text, k.token,
           CASE WHEN k.in_doubt_since IS NOT NULL THEN redrive.token_used_since(k.id, k.version, k.stage) END,
           EXISTS (SELECT 1 FROM evidence e WHERE e.message_id = k.id)
      FROM unnest(v_taken) AS t(id)
     CROSS JOIN LATERAL (SELECT * FROM request x WHERE x.id = t.id AND x.answered_at IS NULL OFFSET 0) q
     CROSS JOIN LATERAL (SELECT * FROM parked x WHERE x.id = q.message_id OFFSET 0) k
     CROSS JOIN LATERAL (SELECT * FROM message x WHERE x.id = k.id OFFSET 0) m
      LEFT JOIN LATERAL (SELECT * FROM body x WHERE x.message_id = k.id AND x.version = k.version OFFSET 0) b ON true;
END $body$;

-- answer_request: what a relay found. A valid letter that has not changed since the request is validated.
-- False where the answer came too late: another relay has it, or it is answered.
-- Locks: the parked row, then the request.
CREATE OR REPLACE FUNCTION redrive.answer_request_1(p_id bigint, p_worker uuid, p_answer json, p_now timestamptz DEFAULT NULL)
RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
DECLARE v_now timestamptz := coalesce(p_now, clock_timestamp()); v_row request;
BEGIN
    PERFORM 1 FROM parked k WHERE k.id = (SELECT q.message_id FROM request q WHERE q.id = p_id) FOR UPDATE;
    SELECT * INTO v_row FROM request q WHERE q.id = p_id AND q.worker = p_worker AND q.answered_at IS NULL FOR UPDATE;
    IF NOT FOUND THEN RETURN false; END IF;
    UPDATE parked k SET workflow = CASE WHEN (p_answer ->> 'valid')::boolean THEN 'validated' ELSE 'remediated' END
     WHERE k.id = v_row.message_id AND k.row_version = v_row.row_version AND k.workflow IN ('remediated', 'validated');
    UPDATE request q
       SET answered_at = v_now,
           answer = CASE WHEN FOUND THEN p_answer ELSE '{"valid": false, "code": "CHANGED"}'::json END
     WHERE q.id = p_id;
    RETURN true;
END $body$;
