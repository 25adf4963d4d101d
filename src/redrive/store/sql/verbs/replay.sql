-- redrive: after workflow
-- Replays in bulk: a snapshot of dead letters that goes out again, at a rate, a few first, and stops when too many fail.
-- A replay lives in the database and is carried out a step at a time by the duty `replay`, so the death of any relay (or of
-- who asked for it) loses nothing: an item is marked in the transaction that moves its message.

-- plan_replay: the dead letters that a filter selects now, in the order in which they would go, each with its verdict:
-- 'would', or why not. p_filter has at least one of ids, group (hex), destination, error_class, kind, tenant.
-- Order: that of the messages; within an ordering key that of its numbers.
CREATE OR REPLACE FUNCTION redrive.plan_replay_1(
    p_filter json, p_out_of_order boolean, p_override boolean, p_limit integer, p_now timestamptz DEFAULT NULL
) RETURNS TABLE (
    place bigint, message_id uuid, destination text, error_class text, row_version integer, money boolean, verdict text
) LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = redrive, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
#variable_conflict use_column
DECLARE v_now         timestamptz := coalesce(p_now, clock_timestamp());
        v_ids         uuid[]  := ARRAY(SELECT value::uuid FROM json_array_elements_text(p_filter -> 'ids'));
        v_group       bytea   := decode(p_filter ->> 'group', 'hex');
        v_destination text    := p_filter ->> 'destination';
        v_error_class text    := p_filter ->> 'error_class';
        v_kind        text    := p_filter ->> 'kind';
        v_tenant      text    := p_filter ->> 'tenant';
        v_any         boolean := p_filter -> 'ids' IS NULL;
BEGIN
    IF v_any AND num_nonnulls(v_group, v_destination, v_error_class, v_kind, v_tenant) = 0 THEN
        RAISE EXCEPTION 'A replay needs a filter: all dead letters at once is never meant.' USING ERRCODE = '22023';
    END IF;
    RETURN QUERY
    SELECT row_number() OVER (ORDER BY c.turn, c.sequence, c.id), c.id, c.destination, c.error_class, c.row_version,
           coalesce((SELECT d.money FROM destination d WHERE d.name = c.destination), false),
           CASE WHEN redrive.has_evidence(c.id) THEN 'evidence'
                WHEN c.workflow = 'ignored' THEN 'ignored'
                WHEN c.workflow <> 'validated' AND NOT p_override THEN 'not_validated'
                WHEN c.expires_at <= v_now AND c.in_doubt_since IS NULL THEN 'expired'
                WHEN c.other THEN 'in_another_replay'
                WHEN c.lane IS NOT NULL AND NOT p_out_of_order AND redrive.gone_out_after(c.lane, c.sequence) > 0
                    THEN 'moved_on'
                ELSE 'would' END
      FROM (SELECT k.*, min(k.id::text) OVER (PARTITION BY coalesce(k.lane::text, k.id::text)) AS turn,
                   EXISTS (SELECT 1 FROM replay_item i
                             JOIN replay r ON r.id = i.replay_id
                            WHERE i.message_id = k.id AND i.outcome IS NULL AND r.finished_at IS NULL) AS other
              -- One of the three runs: by id, by group, or through the dead.
              FROM (SELECT x.* FROM parked x WHERE NOT v_any AND x.id = ANY (v_ids)
                    UNION ALL
                    SELECT x.* FROM parked x WHERE v_any AND v_group IS NOT NULL AND x.failure_group = v_group
                    UNION ALL
                    SELECT x.* FROM parked x WHERE v_any AND v_group IS NULL AND x.reason = 'dead') k
             WHERE k.reason = 'dead'
               AND (v_group IS NULL OR k.failure_group = v_group)
               AND (v_destination IS NULL OR k.destination = v_destination)
               AND (v_error_class IS NULL OR k.error_class = v_error_class)
               AND (v_tenant IS NULL OR k.tenant = v_tenant)
               AND (v_kind IS NULL OR (SELECT m.kind FROM message m WHERE m.id = k.id) = v_kind)
             ORDER BY k.id LIMIT p_limit) c;
END $body$;

-- create_replay: the snapshot, and whatever it says of each. Answers (id, 'created' | 'exists' | 'conflict' | 'empty' |
-- 'too_many' | 'one_stage' (what moves money has one stage)): the same p_request_key again is the same replay ('exists'), and with another
-- filter a 'conflict'.
-- Where any message moves money, it waits for a second person (steer_replay, approve).
-- Locks: the replay, then the audit chain.
CREATE OR REPLACE FUNCTION redrive.create_replay_1(
    p_name text, p_request_key text, p_filter json, p_stage text, p_out_of_order boolean, p_override boolean,
    p_rate_per_second float8, p_canary integer, p_failure_ratio_max float8, p_limit integer, p_actor text, p_reason text,
    p_now timestamptz DEFAULT NULL
) RETURNS TABLE (id uuid, result text) LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
#variable_conflict use_column
DECLARE v_now   timestamptz := coalesce(p_now, clock_timestamp());
        v_id    uuid := redrive.new_id();
        v_other replay;
        v_items bigint;
        v_sends bigint;
        v_money boolean;
        v_stage boolean;
BEGIN
    INSERT INTO replay (id, name, request_key, filter, status, stage, out_of_order, override, rate_per_second, canary,
                        failure_ratio_max, created_at, created_by, reason, resumed_at)
    VALUES (v_id, p_name, p_request_key, p_filter, 'running', p_stage, p_out_of_order, p_override, p_rate_per_second,
            p_canary, p_failure_ratio_max, v_now, p_actor, p_reason, v_now)
    ON CONFLICT (request_key) DO NOTHING;
    IF NOT FOUND THEN
        SELECT * INTO v_other FROM replay r WHERE r.request_key = p_request_key;
        RETURN QUERY SELECT v_other.id, CASE WHEN v_other.filter::jsonb = p_filter::jsonb THEN 'exists' ELSE 'conflict' END;
        RETURN;
    END IF;
    INSERT INTO replay_item (replay_id, position, message_id, error_class, row_version, attempt, outcome, detail, finished_at)
    SELECT v_id, p.place, p.message_id, p.error_class, p.row_version,
           (SELECT k.attempt FROM parked k WHERE k.id = p.message_id), CASE WHEN p.verdict <> 'would' THEN 'skipped' END,
           nullif(p.verdict, 'would'), CASE WHEN p.verdict <> 'would' THEN v_now END
      FROM redrive.plan_replay_1(p_filter, p_out_of_order, p_override, p_limit + 1, v_now) p;
    SELECT count(*), count(*) FILTER (WHERE i.outcome IS NULL) INTO v_items, v_sends FROM replay_item i WHERE i.replay_id = v_id;
    SELECT count(*) > 0, coalesce(bool_or(s.stage <> p_stage), false) INTO v_money, v_stage
      FROM (SELECT k.stage FROM replay_item i
             CROSS JOIN LATERAL (SELECT x.destination, x.stage FROM parked x WHERE x.id = i.message_id OFFSET 0) k
             WHERE i.replay_id = v_id AND i.outcome IS NULL
               AND k.destination IN (SELECT d.name FROM destination d WHERE d.money)) s;
    IF v_sends = 0 OR v_items > p_limit OR v_stage THEN
        DELETE FROM replay_item i WHERE i.replay_id = v_id;
        DELETE FROM replay r WHERE r.id = v_id;
        RETURN QUERY SELECT NULL::uuid, CASE WHEN v_sends = 0 THEN 'empty' WHEN v_stage THEN 'one_stage' ELSE 'too_many' END;
        RETURN;
    END IF;
    IF v_money THEN
        UPDATE replay r SET status = 'waiting' WHERE r.id = v_id;
    END IF;
    PERFORM redrive.audit(p_actor, 'replay', 'replay ' || v_id, p_reason, NULL, json_build_object(
        'name', p_name, 'filter', p_filter, 'override', p_override, 'out_of_order', p_out_of_order, 'messages', v_sends,
        'skipped', v_items - v_sends, 'sha256', (
            SELECT encode(sha256(convert_to(string_agg(i.message_id::text, ',' ORDER BY i.position), 'UTF8')), 'hex')
              FROM replay_item i WHERE i.replay_id = v_id AND i.outcome IS NULL)), v_now);
    RETURN QUERY SELECT v_id, 'created';
END $body$;

-- steer_replay: what a person does to a replay: approve (a second person, of one that waits), pause, resume (also one that
-- stopped), cancel. Answers 'done', 'not_found', 'same_person', 'approver' (who approves must be one), or the status that refuses it.
-- Locks: the replay, then the audit chain.
CREATE OR REPLACE FUNCTION redrive.steer_replay_1(
    p_id uuid, p_act text, p_actor text, p_reason text, p_now timestamptz DEFAULT NULL
) RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
DECLARE v_now    timestamptz := coalesce(p_now, clock_timestamp());
        v_before replay;
        v_to     text;
BEGIN
    SELECT * INTO v_before FROM replay r WHERE r.id = p_id FOR UPDATE;
    IF NOT FOUND THEN RETURN 'not_found'; END IF;
    v_to := CASE WHEN p_act = 'approve' AND v_before.status = 'waiting' THEN 'running'
                 WHEN p_act = 'pause' AND v_before.status = 'running' THEN 'paused'
                 WHEN p_act = 'resume' AND v_before.status IN ('paused', 'stopped') THEN 'running'
                 WHEN p_act = 'cancel' AND v_before.status IN ('waiting', 'running', 'paused', 'stopped') THEN 'cancelled' END;
    IF v_to IS NULL THEN
        RETURN v_before.status;
    ELSIF p_act = 'approve' AND v_before.created_by = p_actor THEN
        RETURN 'same_person';
    ELSIF p_act = 'approve' AND NOT redrive.may_approve() THEN
        RETURN 'approver';
    END IF;
    UPDATE replay r
       SET status = v_to, stop_reason = NULL, resumed_at = CASE WHEN v_to = 'running' THEN v_now ELSE r.resumed_at END,
           approved_by = CASE WHEN p_act = 'approve' THEN p_actor ELSE r.approved_by END,
           rate_room = 0, stepped_at = CASE WHEN v_to = 'running' THEN NULL ELSE r.stepped_at END
     WHERE r.id = p_id;
    IF v_to = 'cancelled' THEN
        UPDATE replay_item i SET outcome = 'skipped', detail = 'cancelled', finished_at = v_now
         WHERE i.replay_id = p_id AND i.outcome IS NULL;
    END IF;
    PERFORM redrive.audit(p_actor, p_act || '_replay', 'replay ' || p_id, p_reason,
                          json_build_object('status', v_before.status), json_build_object('status', v_to), v_now);
    RETURN 'done';
END $body$;

-- run_replay: one step of the replay that waits longest for one: see what became of its messages, stop it if too many failed,
-- send what the rate allows. Returns how many items it judged or sent; NULL where no replay is due.
-- Locks: the replay with SKIP LOCKED, parked rows in id order, lanes in id order. One replay a call, and nothing is sent in a
-- step that escalates, so that this order holds.
CREATE OR REPLACE FUNCTION redrive.run_replay_1(p_every_seconds float8, p_limit integer, p_now timestamptz DEFAULT NULL)
RETURNS integer LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
DECLARE v_now       timestamptz := coalesce(p_now, clock_timestamp());
        v_replay    replay;
        v_count     integer;
        v_escalated boolean;
BEGIN
    SELECT * INTO v_replay FROM replay r
     WHERE r.finished_at IS NULL AND r.status <> 'waiting'
       AND (r.stepped_at IS NULL OR r.stepped_at <= v_now - make_interval(secs => p_every_seconds))
     ORDER BY r.stepped_at NULLS FIRST LIMIT 1 FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN RETURN NULL; END IF;
    SELECT j.judged, j.escalated INTO v_count, v_escalated FROM redrive.judge_items(v_replay, v_now) j;
    v_replay := redrive.judge_replay(v_replay, v_now);
    IF v_replay.status = 'running' AND NOT v_escalated THEN
        v_count := v_count + redrive.send_items(v_replay, p_limit, v_now);
        v_replay := redrive.judge_replay(v_replay, v_now);
    END IF;
    UPDATE replay r SET stepped_at = v_now, status = v_replay.status, stop_reason = v_replay.stop_reason,
                        finished_at = v_replay.finished_at WHERE r.id = v_replay.id;
    RETURN v_count;
END $body$;

-- judge_items: where the messages that are under way have got to. One that is parked with the same error class again is
-- escalated: what was done about it did not help.
CREATE OR REPLACE FUNCTION redrive.judge_items(
    p_replay redrive.replay, p_now timestamptz, OUT judged integer, OUT escalated boolean
) LANGUAGE plpgsql SET search_path = redrive, pg_temp AS $body$
DECLARE v_same uuid[];
BEGIN
    WITH looked AS MATERIALIZED (
        SELECT i.position, i.message_id, i.error_class, coalesce(redrive.state_of(i.message_id), 'closed') AS state
          FROM replay_item i WHERE i.replay_id = p_replay.id AND i.outcome = 'requeued'
    ), ended AS MATERIALIZED (
        SELECT l.position, l.message_id, l.error_class, coalesce(k.reason, l.state) AS outcome, k.error_class AS class_now
          FROM looked l
          LEFT JOIN LATERAL (SELECT p.reason, p.error_class FROM parked p WHERE p.id = l.message_id OFFSET 0) k ON true
         WHERE l.state NOT IN ('pending', 'leased')
    ), noted AS (
        UPDATE replay_item i
           SET outcome = e.outcome, finished_at = p_now,
               detail = CASE WHEN e.class_now = e.error_class THEN 'same_class' ELSE e.class_now END
          FROM ended e WHERE i.replay_id = p_replay.id AND i.position = e.position
    )
    SELECT count(*), array_agg(e.message_id) FILTER (WHERE e.class_now = e.error_class) INTO judged, v_same FROM ended e;
    escalated := v_same IS NOT NULL;
    IF escalated THEN
        PERFORM redrive.lock_parked(v_same);
        UPDATE parked k SET escalated = true, row_version = k.row_version + 1 WHERE k.id = ANY (v_same);
    END IF;
END $body$;

-- judge_replay: stopped where one of the first few failed, or too large a part since it was last resumed; done where nothing
-- is left. In a statement after judge_items, so that it sees what that wrote.
CREATE OR REPLACE FUNCTION redrive.judge_replay(p_replay redrive.replay, p_now timestamptz) RETURNS redrive.replay
LANGUAGE plpgsql SET search_path = redrive, pg_temp AS $body$
DECLARE v_open   bigint;
        v_ended  bigint;
        v_failed bigint;
BEGIN
    SELECT count(*) FILTER (WHERE i.outcome IS NULL OR i.outcome = 'requeued'),
           count(*) FILTER (WHERE i.outcome NOT IN ('requeued', 'skipped') AND i.finished_at > p_replay.resumed_at),
           count(*) FILTER (WHERE i.outcome IN ('dead', 'held', 'unrecorded') AND i.finished_at > p_replay.resumed_at)
      INTO v_open, v_ended, v_failed FROM replay_item i WHERE i.replay_id = p_replay.id;
    IF p_replay.status = 'running' AND v_failed > 0
       AND (v_ended <= p_replay.canary OR (v_ended >= 10 AND v_failed > v_ended * p_replay.failure_ratio_max)) THEN
        p_replay.status := 'stopped';
        p_replay.stop_reason := format('%s of %s failed', v_failed, v_ended);
        PERFORM redrive.audit('redrive', 'stop_replay', 'replay ' || p_replay.id, p_replay.stop_reason,
                              json_build_object('status', 'running'), json_build_object('status', 'stopped'), p_now);
    END IF;
    IF v_open = 0 THEN
        p_replay.status := CASE WHEN p_replay.status = 'cancelled' THEN 'cancelled' ELSE 'done' END;
        p_replay.finished_at := p_now;
    END IF;
    RETURN p_replay;
END $body$;

-- send_items: the next items, in order, back to pending; as many as the rate has saved up for, as the first few (canary) and
-- what is under way leave room for. What has left the dead, was changed or has died again since the snapshot, has evidence of a delivery,
-- or whose key has moved on, is skipped with the reason.
CREATE OR REPLACE FUNCTION redrive.send_items(p_replay redrive.replay, p_limit integer, p_now timestamptz) RETURNS integer
LANGUAGE plpgsql SET search_path = redrive, pg_temp AS $body$
#variable_conflict use_column
DECLARE v_rate  float8 := p_replay.rate_per_second;
        v_room  float8;
        v_sent  bigint;
        v_way   bigint;
        v_take  integer;
        v_next  uuid[];
        v_ids   uuid[];
        v_lanes bigint[];
        v_count integer;
BEGIN
    SELECT count(*) FILTER (WHERE i.requeued_at IS NOT NULL), count(*) FILTER (WHERE i.outcome = 'requeued')
      INTO v_sent, v_way FROM replay_item i WHERE i.replay_id = p_replay.id;
    -- A late step makes up for two seconds at most: what was held up must not arrive all at once.
    v_room := least(greatest(2 * v_rate, 1), p_replay.rate_room
              + v_rate * extract(epoch FROM p_now - coalesce(p_replay.stepped_at, p_now - interval '1 second')));
    v_take := least(floor(v_room), p_limit - v_way);
    IF v_sent < p_replay.canary THEN
        v_take := least(v_take, p_replay.canary - v_sent);
    ELSIF p_replay.canary > 0 AND v_sent - v_way < p_replay.canary THEN
        v_take := 0;  -- the first few are still under way
    END IF;
    v_take := greatest(v_take, 0);
    UPDATE replay r SET rate_room = v_room - v_take WHERE r.id = p_replay.id;
    v_next := ARRAY(SELECT i.message_id FROM replay_item i
                     WHERE i.replay_id = p_replay.id AND i.outcome IS NULL ORDER BY i.position LIMIT v_take);
    IF v_next = '{}' THEN RETURN 0; END IF;
    v_lanes := ARRAY(SELECT k.lane FROM parked k WHERE k.id = ANY (v_next) AND k.reason = 'dead' ORDER BY k.id FOR UPDATE);
    v_lanes := array_remove(v_lanes, NULL);
    PERFORM redrive.lock_lanes(v_lanes);
    UPDATE replay_item i
       SET outcome = CASE WHEN j.why IS NULL THEN 'requeued' ELSE 'skipped' END, detail = j.why,
           requeued_at = CASE WHEN j.why IS NULL THEN p_now END, finished_at = CASE WHEN j.why IS NOT NULL THEN p_now END
      FROM (SELECT n.id, n.why FROM redrive.skip_reasons(p_replay, v_next, p_now) n) j
     WHERE i.replay_id = p_replay.id AND i.message_id = j.id AND i.outcome IS NULL;
    v_ids := ARRAY(SELECT i.message_id FROM replay_item i
                    WHERE i.replay_id = p_replay.id AND i.outcome = 'requeued' AND i.message_id = ANY (v_next));
    WITH gone AS (
        DELETE FROM parked k WHERE k.id = ANY (v_ids) RETURNING k.*
    ), back AS (
        INSERT INTO pending (id, due_at, lane, sequence, attempt, version, level, tenant, destination, stage, expires_at,
                             in_doubt_since, policy_version, token)
        SELECT g.id, p_now, g.lane, g.sequence, g.attempt, g.version, g.level, g.tenant, g.destination,
               coalesce(p_replay.stage, g.stage), g.expires_at, g.in_doubt_since, g.policy_version,
               CASE WHEN p_replay.stage <> g.stage THEN redrive.token_for(g.id, g.version, p_replay.stage) ELSE g.token END
          FROM gone g
    )
    INSERT INTO attempt (message_id, completed_at, due_at, attempt, spent, version, in_doubt, verb, tenant, destination,
                         stage, reference, actor, reason, token)
    SELECT g.id, p_now, p_now, g.attempt, g.spent, g.version, g.in_doubt_since IS NOT NULL, 'replay', g.tenant,
           g.destination, coalesce(p_replay.stage, g.stage), p_replay.id::text, p_replay.created_by, p_replay.reason,
           CASE WHEN p_replay.stage <> g.stage THEN redrive.token_for(g.id, g.version, p_replay.stage) ELSE g.token END
      FROM gone g;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    IF v_lanes <> '{}' THEN
        PERFORM redrive.wake_lanes(v_lanes, p_now);
    END IF;
    IF v_count > 0 THEN
        PERFORM redrive.ring(NULL, p_now);
    END IF;
    RETURN cardinality(v_next);
END $body$;

-- skip_reasons: of these items of a replay each, and why it cannot go; NULL = it can. Parked rows and lanes are locked.
CREATE OR REPLACE FUNCTION redrive.skip_reasons(p_replay redrive.replay, p_ids uuid[], p_now timestamptz)
RETURNS TABLE (id uuid, why text) LANGUAGE plpgsql SET search_path = redrive, pg_temp AS $body$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT u.id,
           CASE WHEN redrive.has_evidence(u.id) THEN 'evidence'
                WHEN k.id IS NULL THEN redrive.refusal(u.id)
                WHEN k.row_version <> i.row_version OR k.attempt <> i.attempt THEN 'changed'
                WHEN k.stage <> p_replay.stage AND redrive.moves_money(k.destination) THEN 'one_stage'
                WHEN k.lane IS NOT NULL AND NOT p_replay.out_of_order
                     AND redrive.gone_out_after(k.lane, k.sequence) > 0 THEN 'moved_on' END
      FROM unnest(p_ids) AS u(id)
     CROSS JOIN LATERAL (SELECT x.row_version, x.attempt FROM replay_item x
                          WHERE x.message_id = u.id AND x.replay_id = p_replay.id LIMIT 1) i
      LEFT JOIN LATERAL (SELECT x.id, x.row_version, x.attempt, x.stage, x.destination, x.lane, x.sequence FROM parked x
                          WHERE x.id = u.id AND x.reason = 'dead' OFFSET 0) k ON true;
END $body$;

-- verify: a person has seen that a replayed message arrived. Answers 'done' for each, or where it is instead; 'not_replayed'.
-- Locks: the replays in id order (so no step of theirs is under way), the items, then the audit chain.
CREATE OR REPLACE FUNCTION redrive.verify_1(p_ids uuid[], p_actor text, p_reason text, p_now timestamptz DEFAULT NULL)
RETURNS TABLE (id uuid, result text) LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
#variable_conflict use_column
DECLARE v_now  timestamptz := coalesce(p_now, clock_timestamp());
        v_id   uuid;
        v_item replay_item;
BEGIN
    PERFORM 1 FROM replay r
      WHERE r.id = ANY (ARRAY(SELECT i.replay_id FROM replay_item i WHERE i.message_id = ANY (p_ids))) ORDER BY r.id FOR UPDATE;
    FOR v_id IN SELECT DISTINCT u.id FROM unnest(p_ids) AS u(id) ORDER BY u.id LOOP
        SELECT i.* INTO v_item FROM replay_item i
         WHERE i.message_id = v_id AND i.requeued_at IS NOT NULL ORDER BY i.requeued_at DESC LIMIT 1 FOR UPDATE;
        IF NOT FOUND THEN
            RETURN QUERY SELECT v_id, CASE redrive.refusal(v_id) WHEN 'not_found' THEN 'not_found' ELSE 'not_replayed' END;
        ELSIF v_item.verified_at IS NOT NULL THEN
            RETURN QUERY SELECT v_id, 'verified';
        ELSIF redrive.refusal(v_id) <> 'delivered' THEN
            RETURN QUERY SELECT v_id, redrive.refusal(v_id);
        ELSE
            UPDATE replay_item i SET verified_at = v_now, verified_by = p_actor
             WHERE i.replay_id = v_item.replay_id AND i.position = v_item.position;
            PERFORM redrive.audit(p_actor, 'verify', v_id::text, p_reason, NULL,
                                  json_build_object('replay', v_item.replay_id, 'state', 'delivered'), v_now);
            RETURN QUERY SELECT v_id, 'done';
        END IF;
    END LOOP;
END $body$;
