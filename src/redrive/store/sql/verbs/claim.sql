-- claim: due messages leave `pending` and are leased to one worker, in one transaction (G-06).
-- Takes at most rooms[i] of (destinations[i], levels[i]): heads of lanes (LANES.md) and unordered messages; nothing of a
-- destination that is paused, and no more than its limits allow. A message that has expired and is not in doubt (and has no
-- answer kept) is closed instead; it comes back as a row without an attempt number. A row without an id names a
-- destination for which more is due than its limits or its breaker let out now; one without a name says that so many tokens led
-- nowhere that more may be due: look again at once.
-- p_since[i]: nothing that became due before is looked for (low_water.sql); NULL = everything.
-- Locks: destination rows that have limits, tokens, lanes and pending rows, all with SKIP LOCKED, so it never waits.
-- Of many places first those are found that have anything due (due_places.sql); the rest of the claim is about these.
-- Relies on: pending_due, pending_lane, lane_wake_due, destination_watched; message's primary key.
-- Never a sequential scan: a plan that a session made while the tables were tiny is kept while they grow. And never JIT:
-- the planner takes the claim of 500 for expensive, and compiling it took 57 ms where running it took 3.
-- And always the generic plan: the planner plans anew for every array, which took 330 of the 413 µs of settling one.
-- The same holds for every verb that says so.
-- p_knows_tokens: false for a relay that is older than token seeds: it would send a message under another token than the one that its
-- destination may know, so it gets nothing that moves money.
CREATE OR REPLACE FUNCTION redrive.claim_1(
    p_worker uuid, p_destinations text[], p_levels smallint[], p_rooms integer[], p_lease_seconds float8,
    p_since timestamptz[] DEFAULT NULL, p_now timestamptz DEFAULT NULL, p_knows_tokens boolean DEFAULT false
) RETURNS SETOF redrive.claimed LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
DECLARE v_now       timestamptz := coalesce(p_now, clock_timestamp());
        c_few_places CONSTANT integer := 60;  -- probing each of so many takes no longer than finding out which have anything due
        v_limited   text[];
        v_down      text[];
        v_closed    text[];
        v_money     text[];
        v_held_back text[];
        v_probes    uuid[];
        v_heads     tid[];
        v_rows      tid[];
        v_taken     bigint[];
        v_over      bigint[];
        v_more      boolean;
BEGIN
    SELECT array_agg(d.name) FILTER (WHERE d.limited),
           array_agg(d.name) FILTER (WHERE d.breaker = 'open' AND d.breaker_until > v_now),
           array_agg(d.name) FILTER (WHERE (d.paused_at IS NOT NULL AND (d.paused_until IS NULL OR d.paused_until > v_now))
                                        OR (d.breaker = 'open' AND d.breaker_until > v_now)),
           array_agg(d.name) FILTER (WHERE d.money)
      INTO v_limited, v_down, v_closed, v_money
      FROM destination d WHERE (d.limited OR d.money OR d.paused_at IS NOT NULL) AND d.name = ANY (p_destinations);
    IF v_money IS NOT NULL AND (NOT p_knows_tokens OR redrive.epoch_changed()) THEN  -- once, not for each of them: see is_open
        v_closed := v_closed || v_money;
    END IF;
    IF v_closed IS NOT NULL THEN
        p_rooms := redrive.rooms_but_of(v_closed, p_destinations, p_rooms);
    END IF;
    IF v_down IS NOT NULL THEN
        RETURN QUERY SELECT (jsonb_populate_record(NULL::redrive.claimed, jsonb_build_object('destination', h.name))).*
                       FROM unnest(v_down) AS h(name);
    END IF;
    IF cardinality(p_destinations) > c_few_places THEN
        SELECT d.destinations, d.levels, d.rooms, d.since INTO p_destinations, p_levels, p_rooms, p_since
          FROM redrive.due_places(p_destinations, p_levels, p_rooms, p_since, v_now) d;
        IF p_destinations IS NULL THEN RETURN; END IF;
        v_limited := (SELECT array_agg(l.name) FROM unnest(v_limited) AS l(name) WHERE l.name IN (SELECT unnest(p_destinations)));
    END IF;
    IF v_limited IS NOT NULL THEN
        SELECT w.rooms, w.held_back INTO p_rooms, v_held_back
          FROM redrive.rooms_within_limits(p_destinations, p_levels, p_rooms, p_since, v_limited, v_now) w;
        RETURN QUERY SELECT (jsonb_populate_record(NULL::redrive.claimed, jsonb_build_object('destination', h.name))).*
                       FROM unnest(v_held_back) AS h(name);
    END IF;
    IF EXISTS (SELECT 1 FROM unnest(p_destinations, p_levels, p_rooms, p_since) AS r(destination, level, room, since)
                CROSS JOIN LATERAL (SELECT 1 FROM lane_wake w
                                     WHERE w.destination = r.destination AND w.level = r.level
                                       AND w.due_at BETWEEN coalesce(r.since, '-infinity') AND v_now
                                     LIMIT 1) token
                WHERE r.room > 0) THEN
        SELECT array_agg(h.place) FILTER (WHERE h.place IS NOT NULL), array_agg(h.room) FILTER (WHERE h.place IS NOT NULL),
               array_agg(h.lane) FILTER (WHERE h.ended), bool_or(h.place IS NULL)
          INTO v_heads, v_taken, v_over, v_more
          FROM redrive.lane_heads(p_destinations, p_levels,
                                  redrive.lane_shares(p_destinations, p_levels, p_rooms, p_since, v_now), p_since, v_now) h;
        IF v_more THEN RETURN NEXT NULL; END IF;
        IF v_heads IS NOT NULL THEN
            p_rooms := redrive.rooms_left(p_rooms, v_taken);
        END IF;
    END IF;
    SELECT array_agg(due.place) INTO v_rows
      FROM unnest(p_destinations, p_levels, p_rooms, p_since) AS r(destination, level, room, since)
     CROSS JOIN LATERAL (
        SELECT p.ctid AS place
          FROM pending p
         WHERE p.destination = r.destination AND p.level = r.level
           AND p.lane IS NULL AND NOT p.suspect AND p.due_at BETWEEN coalesce(r.since, '-infinity') AND v_now
         ORDER BY p.due_at, p.id
         LIMIT r.room
           FOR UPDATE SKIP LOCKED) due;
    v_rows := v_heads || v_rows;
    IF v_rows IS NULL THEN
        RETURN;
    ELSIF v_limited IS NOT NULL THEN
        v_probes := redrive.charge(v_rows, v_limited, v_now, coalesce(p_now, clock_timestamp()));
    END IF;
    RETURN QUERY SELECT * FROM redrive.take(v_rows, p_worker, false, p_lease_seconds, v_now, v_limited, v_probes);
    IF v_over IS NOT NULL THEN
        PERFORM redrive.wake_lanes(v_over, v_now);  -- their heads had expired: they go on
    END IF;
END $body$;

-- lane_shares: how much of each room is for lanes: half, and what too few unordered messages leave; an odd one goes to
-- whichever has waited longer.
CREATE OR REPLACE FUNCTION redrive.lane_shares(
    p_destinations text[], p_levels smallint[], p_rooms integer[], p_since timestamptz[], p_now timestamptz
) RETURNS integer[] LANGUAGE plpgsql AS $body$
BEGIN
    RETURN ARRAY(
        SELECT CASE WHEN t.due_at IS NULL THEN 0
                    ELSE greatest((r.room + (t.due_at <= u.due_at)::integer) / 2, r.room - u.waiting) END
          FROM unnest(p_destinations, p_levels, p_rooms, p_since) WITH ORDINALITY AS r(destination, level, room, since, n)
         CROSS JOIN LATERAL (SELECT coalesce(r.since, '-infinity') AS since) s
          LEFT JOIN LATERAL (SELECT w.due_at FROM lane_wake w
                              WHERE r.room > 0 AND w.destination = r.destination AND w.level = r.level
                                AND w.due_at BETWEEN s.since AND p_now
                              ORDER BY w.due_at, w.lane LIMIT 1) t ON true
         CROSS JOIN LATERAL (SELECT min(w.due_at) AS due_at, count(*)::integer AS waiting
                               FROM (SELECT p.due_at FROM pending p
                                      WHERE t.due_at IS NOT NULL AND p.destination = r.destination AND p.level = r.level
                                        AND p.lane IS NULL AND NOT p.suspect AND p.due_at BETWEEN s.since AND p_now
                                      ORDER BY p.due_at, p.id LIMIT (r.room + 1) / 2) w) u
         ORDER BY r.n);
END $body$;

-- rooms_but_of: the rooms, with none for these destinations.
CREATE OR REPLACE FUNCTION redrive.rooms_but_of(p_closed text[], p_destinations text[], p_rooms integer[]) RETURNS integer[]
LANGUAGE plpgsql IMMUTABLE AS $body$
BEGIN
    RETURN ARRAY(SELECT CASE WHEN r.destination IN (SELECT unnest(p_closed)) THEN 0 ELSE r.room END
                   FROM unnest(p_destinations, p_rooms) WITH ORDINALITY AS r(destination, room, n)
                  ORDER BY r.n);
END $body$;

-- rooms_left: the rooms less what was taken; p_taken has the place of a room in the array once for each message.
CREATE OR REPLACE FUNCTION redrive.rooms_left(p_rooms integer[], p_taken bigint[]) RETURNS integer[]
LANGUAGE plpgsql IMMUTABLE AS $body$
BEGIN
    RETURN ARRAY(SELECT r.room - (coalesce(t.taken, 0))::integer
                   FROM unnest(p_rooms) WITH ORDINALITY AS r(room, n)
                   LEFT JOIN (SELECT u.n, count(*) AS taken FROM unnest(p_taken) AS u(n) GROUP BY u.n) t ON t.n = r.n
                  ORDER BY r.n);
END $body$;

-- claim_suspect: one message that came back from a crash, as the only lease of its worker (G-18). One of a lane only while it
-- is its head.
-- Locks: pending row, or lane, with SKIP LOCKED. Relies on: pending_suspect.
CREATE OR REPLACE FUNCTION redrive.claim_suspect_1(
    p_worker uuid, p_destinations text[], p_lease_seconds float8, p_now timestamptz DEFAULT NULL,
    p_knows_tokens boolean DEFAULT false
) RETURNS SETOF redrive.claimed LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
DECLARE v_now     timestamptz := coalesce(p_now, clock_timestamp());
        v_limited text[];
        v_locked  text[];
        v_probes  uuid[];
        v_lane    bigint;
        v_over    bigint[];
        v_rows    tid[];
BEGIN
    IF EXISTS (SELECT 1 FROM lease l WHERE l.worker = p_worker) THEN RETURN; END IF;
    p_destinations := redrive.with_suspects(p_destinations);
    v_limited := redrive.limited(p_destinations);
    IF NOT p_knows_tokens THEN
        p_destinations := ARRAY(SELECT u.name FROM unnest(p_destinations) AS u(name)
                                 WHERE NOT EXISTS (SELECT 1 FROM destination d WHERE d.name = u.name AND d.money));
    END IF;
    IF v_limited IS NOT NULL THEN
        v_locked := redrive.lock_destinations(v_limited);
        p_destinations := redrive.with_room(p_destinations, v_limited, v_locked, v_now);
    END IF;
    v_rows := ARRAY(
        SELECT p.ctid
          FROM pending p
         WHERE p.suspect AND p.lane IS NULL AND p.due_at <= v_now AND p.destination = ANY (p_destinations)
           AND redrive.is_open(p.destination, v_now)
         ORDER BY p.due_at, p.id
         LIMIT 1
           FOR UPDATE SKIP LOCKED);
    IF v_rows = '{}' THEN
        FOR v_lane IN SELECT s.lane FROM redrive.suspect_lanes(p_destinations, v_now) s LOOP
            PERFORM 1 FROM lane x WHERE x.id = v_lane FOR UPDATE SKIP LOCKED;
            CONTINUE WHEN NOT FOUND;
            SELECT array_agg(h.place), array_agg(h.lane) FILTER (WHERE h.ends_at <= v_now) INTO v_rows, v_over
              FROM redrive.free_heads(ARRAY[v_lane]) h
             WHERE h.suspect AND h.due_at <= v_now AND h.destination = ANY (p_destinations);
            EXIT WHEN v_rows IS NOT NULL;
        END LOOP;
    END IF;
    IF v_limited IS NOT NULL THEN
        v_probes := redrive.charge(v_rows, v_limited, v_now, coalesce(p_now, clock_timestamp()));
    END IF;
    RETURN QUERY SELECT * FROM redrive.take(v_rows, p_worker, true, p_lease_seconds, v_now, v_limited, v_probes);
    IF v_over IS NOT NULL THEN
        PERFORM redrive.wake_lanes(v_over, v_now);
    END IF;
END $body$;

-- suspect_destinations: those of these destinations for which claim_suspect would find something now, at most p_limit of them, by name,
-- beginning behind p_after and from the front again: a caller that names the last one that had its turn goes round. A suspect that another
-- transaction holds does not count.
-- Locks: one pending row or lane of each, shared, with SKIP LOCKED. Relies on: pending_suspect, from destination to destination.
CREATE OR REPLACE FUNCTION redrive.suspect_destinations_1(
    p_destinations text[], p_after text DEFAULT '', p_limit integer DEFAULT 100, p_now timestamptz DEFAULT NULL
) RETURNS text[] LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
DECLARE v_now   timestamptz := coalesce(p_now, clock_timestamp());
        v_name  text        := p_after;
        v_round integer     := 1;
        v_found text[]      := '{}';
BEGIN
    WHILE cardinality(v_found) < p_limit LOOP
        SELECT p.destination INTO v_name FROM pending p WHERE p.suspect AND p.destination > v_name ORDER BY p.destination LIMIT 1;
        IF v_round = 2 AND (v_name IS NULL OR v_name > p_after) THEN
            EXIT;
        ELSIF v_name IS NULL THEN
            v_name := '';
            v_round := 2;
        ELSIF v_name = ANY (p_destinations) AND redrive.has_free_suspect(v_name, v_now) THEN
            v_found := v_found || v_name;
        END IF;
    END LOOP;
    RETURN v_found;
END $body$;

-- has_free_suspect: whether a suspect of this destination may go now, and no other transaction holds it.
CREATE OR REPLACE FUNCTION redrive.has_free_suspect(p_destination text, p_now timestamptz) RETURNS boolean
LANGUAGE plpgsql AS $body$
DECLARE v_name text[] := ARRAY[p_destination];
BEGIN
    IF NOT redrive.is_open(p_destination, p_now)
       OR (redrive.limited(v_name) IS NOT NULL AND redrive.with_room(v_name, v_name, v_name, p_now) = '{}') THEN
        RETURN false;
    END IF;
    PERFORM 1 FROM pending p
      WHERE p.suspect AND p.lane IS NULL AND p.due_at <= p_now AND p.destination = p_destination
      ORDER BY p.due_at, p.id
      LIMIT 1
        FOR SHARE SKIP LOCKED;
    IF FOUND THEN RETURN true; END IF;
    PERFORM 1 FROM lane x WHERE x.id = ANY (ARRAY(SELECT s.lane FROM redrive.suspect_lanes(v_name, p_now) s)) LIMIT 1 FOR SHARE SKIP LOCKED;
    RETURN FOUND;
END $body$;

-- suspect_lanes: lanes whose head is a suspect that is due; a first look, without locks.
CREATE OR REPLACE FUNCTION redrive.suspect_lanes(p_destinations text[], p_now timestamptz) RETURNS TABLE (lane bigint)
LANGUAGE plpgsql STABLE ROWS 10 AS $body$
#variable_conflict use_column
DECLARE v_open text[] := ARRAY(SELECT d.name FROM unnest(p_destinations) AS d(name) WHERE redrive.is_open(d.name, p_now));
BEGIN
    RETURN QUERY
    SELECT h.lane
      FROM redrive.free_heads(ARRAY(SELECT p.lane FROM pending p
                                     WHERE p.suspect AND p.lane IS NOT NULL AND p.due_at <= p_now
                                       AND p.destination = ANY (v_open)
                                     ORDER BY p.due_at, p.id LIMIT 100)) h
     WHERE h.suspect AND h.due_at <= p_now AND h.destination = ANY (v_open)
     ORDER BY h.due_at, h.lane;
END $body$;

-- take: the rows that a claim has locked, moved from pending to lease (or closed as expired), with all a handler needs.
-- p_limited: destinations with limits, whose leases are counted. p_probes: messages that are let through to a destination whose
-- breaker was open. A message whose row is gone is parked instead (park_gone): it comes back as a row without an attempt number, its
-- `refusal` says 'gone'.
CREATE OR REPLACE FUNCTION redrive.take(
    p_rows tid[], p_worker uuid, p_alone boolean, p_lease_seconds float8, p_now timestamptz, p_limited text[] DEFAULT NULL,
    p_probes uuid[] DEFAULT NULL
) RETURNS SETOF redrive.claimed LANGUAGE plpgsql AS $body$
DECLARE v_count bigint;
BEGIN
    RETURN QUERY
    WITH taken AS (
        DELETE FROM pending p WHERE p.ctid = ANY (p_rows) RETURNING p.*
    ), judged AS (
        SELECT x.*, x.expires_at IS NOT NULL AND x.expires_at <= p_now AS expired,
               redrive.just_ends(x.expires_at, x.in_doubt_since, x.kept_answer, p_now) AND NOT redrive.has_evidence(x.id) AS ended,
               coalesce(x.destination = ANY (p_limited), false) AS counted
          FROM taken x
    ), closed AS (
        INSERT INTO attempt (message_id, completed_at, attempt, spent, version, verb, tenant, destination, stage, closed,
                             token)
        SELECT j.id, p_now, j.attempt, j.spent, j.version, 'expire', j.tenant, j.destination, j.stage, 'expired', j.token
          FROM judged j WHERE j.ended
    ), leased AS (
        INSERT INTO lease (id, until, claimed_at, due_at, worker, lane, sequence, lease_seconds, attempt, spent, lookups,
                           crashes, version, level, alone, counted, cancel_requested, tenant, destination, stage,
                           expires_at, in_doubt_since, down_since, first_failed_at, policy_version, kept_answer, token)
        SELECT j.id, p_now + make_interval(secs => p_lease_seconds), p_now, j.due_at, p_worker, j.lane, j.sequence,
               p_lease_seconds, j.attempt + 1, j.spent, j.lookups, j.crashes, j.version, j.level, p_alone,
               j.counted, j.cancel_requested, j.tenant, j.destination, j.stage, j.expires_at, j.in_doubt_since, j.down_since,
               j.first_failed_at, j.policy_version, j.kept_answer, j.token
          FROM judged j WHERE NOT j.ended
    )
    SELECT j.id, CASE WHEN NOT j.ended THEN j.attempt + 1 END,
           j.destination, j.tenant, m.kind, m.key,
           CASE WHEN j.version > 1 THEN (redrive.edited(j.id, j.version)).bytes ELSE m.body END,
           CASE WHEN j.version > 1 THEN (redrive.edited(j.id, j.version)).content_type ELSE m.content_type END,
           j.stage, j.version, j.spent, j.lookups, j.crashes, p_now, m.created_at, m.headers, m.order_by, j.sequence,
           j.in_doubt_since, j.down_since, j.first_failed_at, j.expired, j.cancel_requested, j.kept_answer,
           CASE WHEN j.attempt > 0 THEN redrive.earlier_attempts(j.id) END, j.level,
           coalesce(j.id = ANY (p_probes), false),
           NULL::text, j.token,
           CASE WHEN j.in_doubt_since IS NOT NULL THEN redrive.token_used_since(j.id, j.version, j.stage) END,
           (SELECT true FROM evidence e WHERE e.message_id = j.id LIMIT 1) IS NOT NULL
      FROM judged j
     CROSS JOIN LATERAL (SELECT * FROM message x WHERE x.id = j.id OFFSET 0) m;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    IF v_count < cardinality(p_rows) THEN
        RETURN QUERY SELECT (jsonb_populate_record(NULL::redrive.claimed, jsonb_build_object(
                                'id', g.id, 'destination', g.destination, 'refusal', 'gone'))).*
                       FROM redrive.park_gone(p_worker, p_now) g;
    END IF;
END $body$;

-- park_gone: claims that a worker was given at this very moment, and whose messages have no row any more: a partition with open
-- messages was dropped. There is nothing to send, so each waits for a person: held with the doubt that it had, unrecorded with
-- its answer, else dead. It halts its ordering key: what the destination would say is in the relay's rules, not here.
-- Locks: as settle. Reads all leases: as many as are in flight, and only where something is gone.
CREATE OR REPLACE FUNCTION redrive.park_gone(p_worker uuid, p_now timestamptz) RETURNS TABLE (id uuid, destination text)
LANGUAGE plpgsql AS $body$
#variable_conflict use_column
DECLARE v_gone redrive.lease[] := ARRAY(SELECT l FROM lease l
                                         WHERE l.worker = p_worker AND l.claimed_at = p_now
                                           AND (SELECT true FROM message m WHERE m.id = l.id LIMIT 1) IS NULL);
        v_none text[]          := array_fill(NULL::text, ARRAY[cardinality(v_gone)]);
BEGIN
    PERFORM redrive.settle_1(
        p_worker, 'settle', array_agg(g.id), array_agg(g.attempt), array_agg('park'::text), v_none, v_none,
        array_agg('MESSAGE_GONE'::text), array_agg('The row of the message is gone: its partition was dropped.'::text), v_none, v_none, NULL,
        array_agg(g.spent), array_agg(g.lookups), array_agg(0::float8),
        array_agg(CASE WHEN g.in_doubt_since IS NULL THEN 'none' ELSE 'keep' END), array_agg(false), v_none, v_none,
        array_agg(CASE WHEN g.kept_answer IS NOT NULL THEN 'unrecorded' WHEN g.in_doubt_since IS NOT NULL THEN 'held' ELSE 'dead' END),
        array_agg(false), array_agg(true), v_none, v_none, v_none, array_agg(g.policy_version), p_now)
      FROM unnest(v_gone) AS g
    HAVING count(*) > 0;
    RETURN QUERY SELECT g.id, g.destination FROM unnest(v_gone) AS g;
END $body$;

-- edited: a later body of a message. A function of its own, so that a claim does not open the partitions of `body`, where
-- there are few: that took a tenth of its time.
CREATE OR REPLACE FUNCTION redrive.edited(p_id uuid, p_version integer) RETURNS redrive.body
LANGUAGE plpgsql STABLE AS $body$
DECLARE v_body redrive.body;
BEGIN
    SELECT * INTO v_body FROM redrive.body b WHERE b.message_id = p_id AND b.version = p_version;
    RETURN v_body;
END $body$;

-- The last 50 archive rows of a message as JSON, oldest first: what Attempt.history() shows.
CREATE OR REPLACE FUNCTION redrive.earlier_attempts(p_id uuid) RETURNS json
LANGUAGE sql STABLE AS $body$
    WITH recent AS (
        SELECT a.attempt, a.verb, a.stage, a.version, a.settlement, a.answer, a.code, a.text, a.reference, a.result,
               a.closed, a.worker, a.actor, a.reason, a.claimed_at, a.completed_at, a.latency_ms, a.spent, a.due_at
          FROM redrive.attempt a WHERE a.message_id = p_id
         ORDER BY a.completed_at DESC, a.attempt DESC LIMIT 50
    ), stages AS (  -- the latest end of each: its result is needed however many attempts the next stage takes
        SELECT DISTINCT ON (a.version, a.stage)
               a.attempt, a.verb, a.stage, a.version, a.settlement, a.answer, a.code, a.text, a.reference, a.result,
               a.closed, a.worker, a.actor, a.reason, a.claimed_at, a.completed_at, a.latency_ms, a.spent, a.due_at
          FROM redrive.attempt a WHERE a.message_id = p_id AND a.settlement = 'advance'
         ORDER BY a.version, a.stage, a.completed_at DESC, a.attempt DESC
    ), carried AS (
        SELECT * FROM recent
        UNION ALL
        SELECT * FROM stages s
         WHERE NOT EXISTS (SELECT 1 FROM recent r WHERE (r.attempt, r.verb, r.completed_at) = (s.attempt, s.verb, s.completed_at))
    )
    SELECT json_agg(row_to_json(c) ORDER BY c.completed_at, c.attempt) FROM carried c
$body$;

-- Not in SQL: the body of such a function is parsed and planned anew in every statement that calls it, for 90 µs.
CREATE OR REPLACE FUNCTION redrive.is_paused(p_destination text, p_now timestamptz) RETURNS boolean
LANGUAGE plpgsql STABLE AS $body$
BEGIN
    RETURN EXISTS (SELECT 1 FROM redrive.destination d
                    WHERE d.name = p_destination AND d.paused_at IS NOT NULL
                      AND (d.paused_until IS NULL OR d.paused_until > p_now));
END $body$;

-- is_open: whether a destination may be sent to now, as far as a look without a lock can tell: its limits may still say no.
-- What moves money waits after a failover or a restore (epoch.sql).
CREATE OR REPLACE FUNCTION redrive.is_open(p_destination text, p_now timestamptz) RETURNS boolean
LANGUAGE plpgsql STABLE AS $body$
BEGIN
    RETURN NOT EXISTS (SELECT 1 FROM redrive.destination d
                        WHERE d.name = p_destination
                          AND ((d.paused_at IS NOT NULL AND (d.paused_until IS NULL OR d.paused_until > p_now))
                               OR (d.breaker = 'open' AND d.breaker_until > p_now)
                               OR (d.money AND redrive.epoch_changed())));
END $body$;
