-- claim: due messages leave `pending` and are leased to one worker, in one transaction (G-06).
-- Takes at most rooms[i] of (destinations[i], levels[i]); nothing of a paused destination. A message that has expired
-- and is not in doubt (and has no answer kept) is closed instead; it comes back as a row without an attempt number.
-- Locks: pending rows with SKIP LOCKED, so it never waits. Relies on: pending_due; message's primary key.
-- Never a sequential scan: a plan that a session made while the tables were tiny is kept while they grow. And never JIT:
-- the planner takes the claim of 500 for expensive, and compiling it took 57 ms where running it took 3.
-- And always the generic plan: the planner plans anew for every array, which took 330 of the 413 µs of settling one.
-- The same holds for every verb that says so.
CREATE OR REPLACE FUNCTION redrive.claim_1(
    p_worker        uuid,
    p_destinations  text[],
    p_levels        smallint[],
    p_rooms         integer[],
    p_lease_seconds float8,
    p_now           timestamptz DEFAULT NULL
) RETURNS SETOF redrive.claimed LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp
    SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $body$
DECLARE
    v_now  timestamptz := coalesce(p_now, clock_timestamp());
    v_rows tid[];
BEGIN
    WITH open AS MATERIALIZED (
        SELECT w.destination, w.level, w.room
          FROM unnest(p_destinations, p_levels, p_rooms) AS w(destination, level, room)
         WHERE NOT redrive.is_paused(w.destination, v_now)
    )
    SELECT array_agg(due.place) INTO v_rows
      FROM open
     CROSS JOIN LATERAL (
        SELECT p.ctid AS place
          FROM pending p
         WHERE p.destination = open.destination AND p.level = open.level
           AND p.lane IS NULL AND NOT p.suspect AND p.due_at <= v_now
         ORDER BY p.due_at, p.id
         LIMIT open.room
           FOR UPDATE SKIP LOCKED) due;
    RETURN QUERY SELECT * FROM redrive.take(v_rows, p_worker, false, p_lease_seconds, v_now);
END
$body$;

-- claim_suspect: one message that came back from a crash, as the only lease of its worker (G-18).
-- Locks: pending row with SKIP LOCKED. Relies on: pending_suspect.
CREATE OR REPLACE FUNCTION redrive.claim_suspect_1(
    p_worker        uuid,
    p_destinations  text[],
    p_lease_seconds float8,
    p_now           timestamptz DEFAULT NULL
) RETURNS SETOF redrive.claimed LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp
    SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $body$
DECLARE
    v_now  timestamptz := coalesce(p_now, clock_timestamp());
    v_rows tid[];
BEGIN
    IF EXISTS (SELECT 1 FROM lease l WHERE l.worker = p_worker) THEN
        RETURN;
    END IF;
    v_rows := ARRAY(
        SELECT p.ctid
          FROM pending p
         WHERE p.suspect AND p.lane IS NULL AND p.due_at <= v_now AND p.destination = ANY (p_destinations)
           AND NOT redrive.is_paused(p.destination, v_now)
         ORDER BY p.due_at, p.id
         LIMIT 1
           FOR UPDATE SKIP LOCKED);
    RETURN QUERY SELECT * FROM redrive.take(v_rows, p_worker, true, p_lease_seconds, v_now);
END
$body$;

-- has_suspect: whether claim_suspect would find something.
CREATE OR REPLACE FUNCTION redrive.has_suspect_1(p_destinations text[], p_now timestamptz DEFAULT NULL) RETURNS boolean
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = redrive, pg_temp
    SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $body$
BEGIN
    RETURN EXISTS (SELECT 1 FROM pending p
                    WHERE p.suspect AND p.lane IS NULL AND p.due_at <= coalesce(p_now, clock_timestamp())
                      AND p.destination = ANY (p_destinations)
                      AND NOT redrive.is_paused(p.destination, coalesce(p_now, clock_timestamp())));
END
$body$;

-- take: the rows that a claim has locked, moved from pending to lease (or closed as expired), with all a handler needs.
CREATE OR REPLACE FUNCTION redrive.take(
    p_rows tid[], p_worker uuid, p_alone boolean, p_lease_seconds float8, p_now timestamptz
) RETURNS SETOF redrive.claimed LANGUAGE plpgsql SET search_path = redrive, pg_temp
    SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $body$
BEGIN
    RETURN QUERY
    WITH taken AS (
        DELETE FROM pending p WHERE p.ctid = ANY (p_rows) RETURNING p.*
    ), judged AS (
        -- In doubt it is looked up first, with an answer kept it is recorded: neither just ends.
        SELECT t.*, t.expired AND t.in_doubt_since IS NULL AND t.kept_answer IS NULL AS ended
          FROM (SELECT x.*, x.expires_at IS NOT NULL AND x.expires_at <= p_now AS expired FROM taken x) t
    ), closed AS (
        INSERT INTO attempt (message_id, completed_at, attempt, spent, version, verb, tenant, destination, stage, closed)
        SELECT j.id, p_now, j.attempt, j.spent, j.version, 'expire', j.tenant, j.destination, j.stage, 'expired'
          FROM judged j WHERE j.ended
    ), leased AS (
        INSERT INTO lease (id, until, claimed_at, due_at, worker, lane, sequence, lease_seconds, attempt, spent, lookups,
                           crashes, version, level, alone, cancel_requested, tenant, destination, stage, expires_at,
                           in_doubt_since, down_since, first_failed_at, policy_version, kept_answer)
        SELECT j.id, p_now + make_interval(secs => p_lease_seconds), p_now, j.due_at, p_worker, j.lane, j.sequence,
               p_lease_seconds, j.attempt + 1, j.spent, j.lookups, j.crashes, j.version, j.level, p_alone,
               j.cancel_requested, j.tenant, j.destination, j.stage, j.expires_at, j.in_doubt_since, j.down_since,
               j.first_failed_at, j.policy_version, j.kept_answer
          FROM judged j WHERE NOT j.ended
    )
    SELECT j.id, CASE WHEN NOT j.ended THEN j.attempt + 1 END,
           j.destination, j.tenant, m.kind, m.key,
           CASE WHEN j.version > 1 THEN (SELECT b.bytes FROM body b WHERE b.message_id = j.id AND b.version = j.version)
                ELSE m.body END,
           CASE WHEN j.version > 1
                THEN (SELECT b.content_type FROM body b WHERE b.message_id = j.id AND b.version = j.version)
                ELSE m.content_type END,
           j.stage, j.version, j.spent, j.lookups, j.crashes, p_now, m.created_at, m.headers, m.order_by, j.sequence,
           j.in_doubt_since, j.down_since, j.first_failed_at, j.expired, j.cancel_requested, j.kept_answer,
           CASE WHEN j.attempt > 0 THEN redrive.earlier_attempts(j.id) END, j.level
      FROM judged j
     CROSS JOIN LATERAL (SELECT * FROM message x WHERE x.id = j.id OFFSET 0) m;
END
$body$;

-- The last 50 archive rows of a message as JSON, oldest first: what Attempt.history() shows.
CREATE OR REPLACE FUNCTION redrive.earlier_attempts(p_id uuid) RETURNS json LANGUAGE sql STABLE
AS $body$
    SELECT json_agg(row_to_json(recent) ORDER BY recent.completed_at, recent.attempt)
      FROM (SELECT a.attempt, a.verb, a.stage, a.version, a.settlement, a.answer, a.code, a.text, a.reference, a.result,
                   a.closed, a.worker, a.actor, a.reason, a.claimed_at, a.completed_at, a.latency_ms, a.spent, a.due_at
              FROM redrive.attempt a WHERE a.message_id = p_id
             ORDER BY a.completed_at DESC, a.attempt DESC LIMIT 50) recent
$body$;

CREATE OR REPLACE FUNCTION redrive.is_paused(p_destination text, p_now timestamptz) RETURNS boolean LANGUAGE sql STABLE
AS $body$
    SELECT EXISTS (SELECT 1 FROM redrive.destination d
                    WHERE d.name = p_destination AND d.paused_at IS NOT NULL
                      AND (d.paused_until IS NULL OR d.paused_until > p_now))
$body$;
