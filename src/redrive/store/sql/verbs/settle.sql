-- settle: outcomes of claims. Each input row either finds its lease (id, attempt, worker), which is deleted and everything
-- follows from it, or is refused: no lease row, no effect but a late answer kept (G-14).
-- A claim that is gone because this worker has settled it before with the same answer (a commit whose reply was lost) is
-- 'repeated'; another answer is evidence, and kept.
-- Returns the rows that were not settled: (id, attempt, 'refused' | 'repeated' | 'busy').
-- p_wait: false = a lease row that another transaction holds (a caller's open cancel, a handler's complete) is not waited for;
-- its outcome is 'busy', nothing is written for it, and it is to be settled again. Lanes are never waited for (LANES.md).
-- Locks: lease rows in id order, then lanes in id order with SKIP LOCKED. Relies on: lease's primary key, one probe per input row (never
-- a join of two sets).
--
-- p_suspects: what is retried comes back as a suspect: its handler runs on, so its next attempt runs in a process that can be ended.
-- p_doubts: 'none', 'keep' (since the moment already known) or 'now'. p_delays: seconds until the next attempt.
-- A cancel that was asked for meanwhile turns a retry or an advance without doubt into the end of the message, but not one that
-- keeps its answer: that was answered, and goes back only to be recorded.
-- An advance into a destination of another system is parked instead (park_owned).
-- A message with evidence that it was delivered (evidence.sql) is held, whatever the outcome says, unless that is a delivery, or a failed
-- record with its answer kept.
-- What is parked is told apart by its failure group and appended to the tally: no row that others would wait for.
CREATE OR REPLACE FUNCTION redrive.settle_1(
    p_worker uuid, p_verb text, p_ids uuid[], p_attempts integer[], p_settlements text[], p_closed text[], p_answers text[],
    p_codes text[], p_texts text[], p_references text[], p_results text[], p_latencies integer[], p_spent integer[],
    p_lookups integer[], p_delays float8[], p_doubts text[], p_down boolean[], p_stages text[], p_destinations text[],
    p_park_reasons text[], p_exhausted boolean[], p_halts boolean[], p_stacks text[], p_contexts text[], p_kept_answers text[],
    p_policy_versions text[], p_now timestamptz DEFAULT NULL, p_wait boolean DEFAULT true, p_suspects boolean[] DEFAULT NULL
) RETURNS TABLE (id uuid, attempt integer, result text) LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
#variable_conflict use_column
DECLARE v_now          timestamptz := coalesce(p_now, clock_timestamp());
        v_held         uuid[];
        v_busy         uuid[];
        v_lanes        bigint[];
        v_destinations text[];
        v_levels       smallint[];
        v_due          text[];
        v_kinds        text[];
        v_settlements  text[]    := p_settlements;  -- as decided; changed where there is evidence
        v_closed       text[]    := p_closed;
        v_codes        text[]    := p_codes;
        v_doubts       text[]    := p_doubts;
        v_park_reasons text[]    := p_park_reasons;
        v_halts        boolean[] := p_halts;
BEGIN
    -- A settlement that leads nowhere would lose the message: its lease goes, and nothing comes instead.
    IF EXISTS (SELECT 1 FROM unnest(p_settlements, p_closed, p_park_reasons) AS s(kind, closed, park_reason)
                WHERE CASE s.kind WHEN 'close' THEN s.closed IS NULL WHEN 'park' THEN s.park_reason IS NULL
                                  WHEN 'retry' THEN false WHEN 'advance' THEN false ELSE true END) THEN
        RAISE EXCEPTION 'A settlement must close, advance, retry or park.' USING ERRCODE = '22023';
    END IF;
    IF cardinality(array_remove(p_destinations, NULL)) > 0 THEN
        SELECT o.settlements, o.park_reasons, o.codes, o.texts, o.halts, o.destinations
          INTO p_settlements, p_park_reasons, p_codes, p_texts, p_halts, p_destinations
          FROM redrive.park_owned(p_ids, p_settlements, p_park_reasons, p_codes, p_texts, p_halts, p_destinations, p_doubts) o;
        v_settlements := p_settlements;
        v_park_reasons := p_park_reasons;
        v_codes := p_codes;
        v_halts := p_halts;
    END IF;
    IF EXISTS (SELECT 1 FROM unnest(p_ids) AS u(id) WHERE (SELECT true FROM evidence e WHERE e.message_id = u.id LIMIT 1)) THEN
        SELECT array_agg(CASE WHEN u.proven THEN 'park' ELSE u.kind END ORDER BY u.n),
               array_agg(CASE WHEN NOT u.proven THEN u.closed END ORDER BY u.n),
               array_agg(CASE WHEN u.proven THEN 'LATE_SUCCESS' ELSE u.code END ORDER BY u.n),
               array_agg(CASE WHEN u.proven AND u.doubt = 'none' THEN 'keep' ELSE u.doubt END ORDER BY u.n),
               array_agg(CASE WHEN u.proven THEN 'held' ELSE u.park_reason END ORDER BY u.n),
               array_agg(u.proven OR u.halts ORDER BY u.n)
          INTO v_settlements, v_closed, v_codes, v_doubts, v_park_reasons, v_halts
          FROM (SELECT i.*, i.closed IS DISTINCT FROM 'delivered' AND i.park_reason IS DISTINCT FROM 'unrecorded'
                            AND redrive.has_evidence(i.id) AS proven
                  FROM unnest(p_ids, p_settlements, p_closed, p_codes, p_doubts, p_park_reasons, p_halts)
                       WITH ORDINALITY AS i(id, kind, closed, code, doubt, park_reason, halts, n)) u;
    END IF;
    IF 'park' = ANY (v_settlements) THEN  -- only then: opening the partitions of message costs as much as a settle
        v_kinds := ARRAY(SELECT CASE WHEN u.settlement = 'park' THEN (SELECT m.kind FROM message m WHERE m.id = u.id) END
                           FROM unnest(p_ids, v_settlements) WITH ORDINALITY AS u(id, settlement, n) ORDER BY u.n);
    END IF;
    WITH input AS MATERIALIZED (
        SELECT * FROM unnest(p_ids, p_attempts, v_settlements, v_closed, p_answers, v_codes, p_texts, p_references,
                             p_results, p_latencies, p_spent, p_lookups, p_delays, v_doubts, p_down, p_stages,
                             p_destinations, v_park_reasons, p_exhausted, v_halts, p_stacks, p_contexts, p_kept_answers,
                             p_policy_versions, v_kinds, p_suspects)
             AS i(id, attempt, settlement, closed, answer, code, text, reference, result, latency_ms, spent, lookups,
                  delay_seconds, doubt, down, next_stage, next_destination, park_reason, exhausted, halts, stack, context,
                  kept_answer, policy_version, message_kind, suspect)
         ORDER BY i.id
    ), fenced AS MATERIALIZED (
        SELECT i.attempt AS fence, i.settlement, i.closed, i.answer, i.code, i.text, i.reference, i.result, i.latency_ms,
               i.spent, i.lookups, i.delay_seconds, i.down, i.next_stage, i.next_destination, i.park_reason, i.exhausted,
               i.halts, i.stack, i.context, i.kept_answer, i.policy_version, i.message_kind, i.suspect, l.id, l.claimed_at, l.due_at,
               l.worker, l.lane, l.sequence, l.crashes, l.version, l.level, l.tenant, l.destination, l.stage, l.expires_at,
               l.down_since, l.first_failed_at, l.cancel_requested, l.token, l.kept_answer AS answer_before,
               CASE i.doubt WHEN 'none' THEN NULL WHEN 'keep' THEN coalesce(l.in_doubt_since, v_now) ELSE v_now END
                   AS in_doubt_since
          FROM input i
         CROSS JOIN LATERAL (SELECT * FROM (SELECT x.* FROM lease x WHERE p_wait AND x.id = i.id AND x.attempt = i.attempt AND x.worker = p_worker FOR UPDATE) waited
                             UNION ALL
                             SELECT * FROM (SELECT x.* FROM lease x WHERE NOT p_wait AND x.id = i.id AND x.attempt = i.attempt AND x.worker = p_worker FOR UPDATE SKIP LOCKED) free) l
    ), gone AS (
        -- By id, never by place: a renew or cancel that we waited for has moved the row out of this statement's sight.
        DELETE FROM lease x WHERE x.id = ANY (ARRAY(SELECT f.id FROM fenced f))
    ), judged AS MATERIALIZED (
        SELECT f.*, f.cancel_requested AND f.settlement IN ('retry', 'advance') AND f.in_doubt_since IS NULL
                    AND f.kept_answer IS NULL AS cancelled
          FROM fenced f
    ), archived AS (
        INSERT INTO attempt (message_id, claimed_at, completed_at, due_at, worker, attempt, spent, version, latency_ms,
                             in_doubt, verb, tenant, destination, stage, settlement, answer, closed, code, policy_version,
                             text, reference, result, token)
        SELECT j.id, j.claimed_at, greatest(j.claimed_at, v_now),
               CASE WHEN j.settlement = 'retry' AND NOT j.cancelled THEN v_now + make_interval(secs => j.delay_seconds) END,
               j.worker, j.fence, j.spent, j.version, j.latency_ms, j.in_doubt_since IS NOT NULL, p_verb, j.tenant,
               j.destination, j.stage, j.settlement, j.answer, CASE WHEN j.cancelled THEN 'cancelled' ELSE j.closed END,
               j.code, j.policy_version, j.text, j.reference, j.result::json, j.token
          FROM judged j
    ), back AS (
        INSERT INTO pending (id, due_at, lane, sequence, attempt, spent, lookups, crashes, version, level, suspect,
                             cancel_requested, tenant, destination, stage, expires_at, in_doubt_since, down_since,
                             first_failed_at, policy_version, kept_answer, token)
        SELECT j.id, v_now + make_interval(secs => j.delay_seconds), j.lane, j.sequence, j.fence, j.spent, j.lookups,
               j.crashes, j.version, j.level, j.crashes > 0 OR coalesce(j.suspect, false), j.cancel_requested, j.tenant,
               coalesce(j.next_destination, j.destination), coalesce(j.next_stage, j.stage), j.expires_at,
               j.in_doubt_since, CASE WHEN j.down THEN coalesce(j.down_since, v_now) END,
               CASE WHEN j.settlement = 'retry' THEN coalesce(j.first_failed_at, v_now) END, j.policy_version,
               j.kept_answer::json,
               CASE WHEN j.next_stage <> j.stage THEN redrive.token_for(j.id, j.version, j.next_stage) ELSE j.token END
          FROM judged j WHERE j.settlement IN ('retry', 'advance') AND NOT j.cancelled
    ), parked AS (
        INSERT INTO parked (id, reason, parked_at, first_failed_at, last_failed_at, tenant, destination, stage, version,
                            level, lane, sequence, attempt, spent, lookups, crashes, error_class, exhausted, halts,
                            in_doubt_since, expires_at, policy_version, last_text, last_stack, context, kept_answer,
                            failure_group, token)
        SELECT j.id, j.park_reason, v_now, coalesce(j.first_failed_at, v_now), v_now, j.tenant, j.destination, j.stage,
               j.version, j.level, j.lane, j.sequence, j.fence, j.spent, j.lookups, j.crashes, j.code, j.exhausted, j.halts,
               j.in_doubt_since, j.expires_at, j.policy_version, j.text, j.stack, coalesce(j.context, '{}')::json,
               coalesce(j.kept_answer::json, j.answer_before),
               redrive.failure_fingerprint(j.destination, j.message_kind, j.code, j.text), j.token
          FROM judged j WHERE j.settlement = 'park'
    ), tallied AS (
        INSERT INTO failure_tally (fingerprint, at, destination, kind, error_class, sample_text)
        SELECT redrive.failure_fingerprint(j.destination, j.message_kind, j.code, j.text), v_now, j.destination,
               coalesce(j.message_kind, ''), j.code, left(j.text, 200)
          FROM judged j WHERE j.settlement = 'park'
    ), unseen AS (
        -- In the caller's own transaction (complete) a look may be as old as its first statement: then a token in any case.
        INSERT INTO lane_wake (destination, level, due_at, lane)
        SELECT f.destination, f.level, v_now, f.lane FROM fenced f
         WHERE f.lane IS NOT NULL AND current_setting('transaction_isolation') <> 'read committed'
    )
    SELECT array_agg(j.id), array_agg(j.lane) FILTER (WHERE j.lane IS NOT NULL),
           array_agg(j.destination) FILTER (WHERE j.lane IS NOT NULL), array_agg(j.level) FILTER (WHERE j.lane IS NOT NULL),
           array_agg(DISTINCT coalesce(j.next_destination, j.destination))
               FILTER (WHERE j.settlement IN ('retry', 'advance') AND NOT j.cancelled AND j.delay_seconds <= 0)
      INTO v_held, v_lanes, v_destinations, v_levels, v_due FROM judged j;
    IF v_lanes IS NOT NULL THEN
        PERFORM redrive.release_free_lanes(v_lanes, v_destinations, v_levels, v_now);
    END IF;
    IF v_due IS NOT NULL THEN
        PERFORM redrive.ring(v_due, v_now);
    END IF;

    IF NOT p_wait AND coalesce(cardinality(v_held), 0) < cardinality(p_ids) THEN
        v_busy := redrive.still_leased(p_worker, p_ids, p_attempts, v_held);
        RETURN QUERY SELECT i.id, i.attempt, 'busy' FROM unnest(p_ids, p_attempts) AS i(id, attempt) WHERE i.id = ANY (v_busy);
        v_held := v_held || v_busy;
    END IF;
    IF coalesce(cardinality(v_held), 0) < cardinality(p_ids) THEN
        RETURN QUERY SELECT * FROM redrive.refuse(p_worker, p_ids, p_attempts, v_held, p_settlements, p_answers, p_codes,
                                                  p_references, p_texts, v_now);
    END IF;
END $body$;

-- settle_delivered: the same for plain deliveries, which is nearly all of them: a few arrays instead of twenty-four. Where one
-- is shorter than the ids: no reference, the first policy version for all, no hand-over.
-- p_hand_over: the next message of this one's lane may be claimed at once, by the same worker, for p_lease_seconds.
-- Returns what was not settled, with `refusal`, and what was handed over, as claim does.
CREATE OR REPLACE FUNCTION redrive.settle_delivered_1(
    p_worker uuid, p_ids uuid[], p_attempts integer[], p_latencies integer[], p_references text[], p_policy_versions text[],
    p_hand_over boolean[] DEFAULT NULL, p_lease_seconds float8 DEFAULT NULL, p_now timestamptz DEFAULT NULL,
    p_wait boolean DEFAULT true
) RETURNS SETOF redrive.claimed LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
DECLARE v_now          timestamptz := coalesce(p_now, clock_timestamp());
        v_held         uuid[];
        v_busy         uuid[];
        v_lanes        bigint[];
        v_destinations text[];
        v_levels       smallint[];
        v_next         bigint[];
        v_next_to      text[];
        v_locked       bigint[];
BEGIN
    WITH fenced AS MATERIALIZED (
        SELECT i.latency_ms, i.reference, i.policy_version, i.hand_over, l.*
          FROM (SELECT * FROM unnest(p_ids, p_attempts, p_latencies, p_references, p_policy_versions, p_hand_over)
                           AS i(id, attempt, latency_ms, reference, policy_version, hand_over) ORDER BY i.id) i
         CROSS JOIN LATERAL (SELECT * FROM (SELECT x.id, x.attempt, x.claimed_at, x.worker, x.spent, x.version, x.tenant,
                                                   x.destination, x.stage, x.lane, x.level, x.token
                                              FROM lease x
                                             WHERE p_wait AND x.id = i.id AND x.attempt = i.attempt AND x.worker = p_worker FOR UPDATE) waited
                             UNION ALL
                             SELECT * FROM (SELECT x.id, x.attempt, x.claimed_at, x.worker, x.spent, x.version, x.tenant,
                                                   x.destination, x.stage, x.lane, x.level, x.token
                                              FROM lease x
                                             WHERE NOT p_wait AND x.id = i.id AND x.attempt = i.attempt AND x.worker = p_worker FOR UPDATE SKIP LOCKED) free) l
    ), gone AS (
        -- By id, never by place: a renew or cancel that we waited for has moved the row out of this statement's sight.
        DELETE FROM lease x WHERE x.id = ANY (ARRAY(SELECT f.id FROM fenced f))
    ), archived AS (
        INSERT INTO attempt (message_id, claimed_at, completed_at, worker, attempt, spent, version, latency_ms, verb,
                             tenant, destination, stage, settlement, answer, closed, policy_version, reference,
                             token)
        SELECT f.id, f.claimed_at, greatest(f.claimed_at, v_now), f.worker, f.attempt, f.spent + 1, f.version, f.latency_ms, 'settle', f.tenant,
               f.destination, f.stage, 'close', 'delivered', 'delivered', coalesce(f.policy_version, p_policy_versions[1]),
               f.reference, f.token
          FROM fenced f
    )
    SELECT array_agg(f.id), array_agg(f.lane) FILTER (WHERE f.lane IS NOT NULL),
           array_agg(f.destination) FILTER (WHERE f.lane IS NOT NULL), array_agg(f.level) FILTER (WHERE f.lane IS NOT NULL),
           array_agg(f.lane) FILTER (WHERE f.lane IS NOT NULL AND f.hand_over),
           array_agg(f.destination) FILTER (WHERE f.lane IS NOT NULL AND f.hand_over)
      INTO v_held, v_lanes, v_destinations, v_levels, v_next, v_next_to FROM fenced f;

    IF v_lanes IS NOT NULL THEN
        v_locked := redrive.lock_free_lanes(v_lanes);
        IF v_next IS NOT NULL THEN  -- of a lane that another transaction holds nothing is handed over
            SELECT array_agg(n.lane), array_agg(n.destination) INTO v_next, v_next_to
              FROM unnest(v_next, v_next_to) AS n(lane, destination) WHERE n.lane = ANY (v_locked);
        END IF;
        IF v_next IS NOT NULL THEN
            RETURN QUERY SELECT * FROM redrive.take(redrive.next_heads(v_next, v_next_to, v_now), p_worker, false,
                                                    p_lease_seconds, v_now) t
                          WHERE t.attempt IS NOT NULL;  -- one whose row is gone was parked, and halts its lane
        END IF;
        PERFORM redrive.wake_lanes(v_locked, v_now);
        PERFORM redrive.wake_unlocked_lanes(v_lanes, v_destinations, v_levels, v_locked, v_now);
    END IF;
    IF NOT p_wait AND coalesce(cardinality(v_held), 0) < cardinality(p_ids) THEN
        v_busy := redrive.still_leased(p_worker, p_ids, p_attempts, v_held);
        RETURN QUERY SELECT (jsonb_populate_record(NULL::redrive.claimed, jsonb_build_object(
                                'id', i.id, 'attempt', i.attempt, 'refusal', 'busy'))).*
                       FROM unnest(p_ids, p_attempts) AS i(id, attempt) WHERE i.id = ANY (v_busy);
        v_held := v_held || v_busy;
    END IF;
    IF coalesce(cardinality(v_held), 0) < cardinality(p_ids) THEN
        RETURN QUERY SELECT (jsonb_populate_record(NULL::redrive.claimed, jsonb_build_object(
                                'id', r.id, 'attempt', r.attempt, 'refusal', r.result))).*
                       FROM redrive.refuse(
            p_worker, p_ids, p_attempts, v_held, array_fill('close'::text, ARRAY[cardinality(p_ids)]),
            array_fill('delivered'::text, ARRAY[cardinality(p_ids)]), NULL, p_references, NULL, v_now) r;
    END IF;
END $body$;

-- still_leased: of these claims those that are still held, though settle did not get them: another transaction has locked their
-- rows. A new statement: a claim that ended meanwhile is not among them, and is refused.
CREATE OR REPLACE FUNCTION redrive.still_leased(p_worker uuid, p_ids uuid[], p_attempts integer[], p_but uuid[]) RETURNS uuid[]
LANGUAGE plpgsql AS $body$
BEGIN
    RETURN ARRAY(SELECT i.id FROM unnest(p_ids, p_attempts) AS i(id, attempt)
                  CROSS JOIN LATERAL (SELECT 1 FROM redrive.lease x WHERE x.id = i.id AND x.attempt = i.attempt AND x.worker = p_worker LIMIT 1) l
                  WHERE p_but IS NULL OR i.id <> ALL (p_but));
END $body$;

-- refuse: outcomes whose claim is gone. A new statement: it sees what a settle that we waited for has committed.
-- One that says delivered is evidence where the destination moves money, is asked in doubt, or holds in doubt: the message is held with it
-- (G-14). Elsewhere it is kept and shown, and changes nothing.
CREATE OR REPLACE FUNCTION redrive.refuse(
    p_worker uuid, p_ids uuid[], p_attempts integer[], p_held uuid[], p_settlements text[], p_answers text[], p_codes text[],
    p_references text[], p_texts text[], p_now timestamptz
) RETURNS TABLE (id uuid, attempt integer, result text) LANGUAGE plpgsql AS $body$
#variable_conflict use_column
DECLARE v_late record;
BEGIN
    RETURN QUERY
    WITH lost AS MATERIALIZED (
        SELECT i.*, coalesce(before.found, false) AS repeated
          FROM unnest(p_ids, p_attempts, p_settlements, p_answers, p_codes, p_references, p_texts)
               AS i(id, attempt, settlement, answer, code, reference, text)
          -- A probe with LIMIT, not EXISTS: that may be planned as one hash over the whole archive.
          LEFT JOIN LATERAL (SELECT true AS found FROM attempt a
                              WHERE a.message_id = i.id AND a.attempt = i.attempt AND a.worker = p_worker
                                AND a.verb IN ('settle', 'complete') AND a.answer IS NOT DISTINCT FROM i.answer
                              LIMIT 1) before ON true
         WHERE p_held IS NULL OR i.id <> ALL (p_held)
    ), kept AS (
        INSERT INTO late_answer (message_id, attempt, worker, at, settlement, answer, code, reference, text)
        SELECT l.id, l.attempt, p_worker, p_now, l.settlement, l.answer, l.code, l.reference, l.text
          FROM lost l WHERE NOT l.repeated
    )
    SELECT l.id, l.attempt, CASE WHEN l.repeated THEN 'repeated' ELSE 'refused' END FROM lost l;
    FOR v_late IN
        SELECT l.message_id, l.attempt, l.reference
          FROM unnest(p_ids, p_attempts, p_answers) AS i(id, attempt, answer)
         CROSS JOIN LATERAL (SELECT x.message_id, x.attempt, x.reference FROM late_answer x
                              WHERE x.message_id = i.id AND x.attempt = i.attempt AND x.worker = p_worker AND x.answer = 'delivered'
                              ORDER BY x.id DESC LIMIT 1) l
         CROSS JOIN LATERAL (SELECT a.destination FROM attempt a  -- where the claim that was lost would have sent it
                              WHERE a.message_id = i.id AND a.attempt = i.attempt LIMIT 1) a
         CROSS JOIN LATERAL (SELECT 1 FROM redrive.destination d
                              WHERE d.name = a.destination AND (d.money OR d.in_doubt IN ('lookup', 'hold')) LIMIT 1) d
         WHERE i.answer = 'delivered' AND (p_held IS NULL OR i.id <> ALL (p_held))
         ORDER BY i.id
    LOOP
        PERFORM redrive.add_evidence(v_late.message_id, 'late_answer', 'attempt ' || v_late.attempt, v_late.reference, p_now);
    END LOOP;
END $body$;
