-- The lanes of ordered messages: who may go, and who is looked at next. ../LANES.md has the reasoning; read it first.
-- Everything here is called by verbs; nothing is called from outside.

-- release_lanes: the last step of every verb that took away, put back or re-dated the head of a lane, but for those that end a
-- claim in the relay's own time (release_free_lanes).
-- Locks: the lanes, in id order; it may wait for them. The look is a statement of its own, after the lock.
-- With settings of its own, because reap has not all of them.
CREATE OR REPLACE FUNCTION redrive.release_lanes(p_lanes bigint[], p_now timestamptz) RETURNS void
LANGUAGE plpgsql SET search_path = redrive, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
BEGIN
    PERFORM redrive.lock_lanes(p_lanes);
    PERFORM redrive.wake_lanes(p_lanes, p_now);
    PERFORM redrive.wake_leased_lanes(p_lanes, p_now);
END $body$;

-- release_free_lanes: the same for the verbs that end a claim (settle, hand back): a lane that another transaction holds is not
-- waited for, but gets tokens that need no look. p_destinations, p_levels: of the claim that ended in each lane.
-- Locks: the lanes that no other transaction holds, in id order.
CREATE OR REPLACE FUNCTION redrive.release_free_lanes(
    p_lanes bigint[], p_destinations text[], p_levels smallint[], p_now timestamptz
) RETURNS void LANGUAGE plpgsql AS $body$
DECLARE v_locked bigint[] := redrive.lock_free_lanes(p_lanes);
BEGIN
    PERFORM redrive.wake_lanes(v_locked, p_now);
    PERFORM redrive.wake_unlocked_lanes(p_lanes, p_destinations, p_levels, v_locked, p_now);
END $body$;

-- lock_free_lanes: those of these lanes that no other transaction holds, locked. A claim that looks at a lane holds it for about a
-- millisecond, so a few milliseconds are given to that; a caller's transaction is not waited for.
CREATE OR REPLACE FUNCTION redrive.lock_free_lanes(p_lanes bigint[]) RETURNS bigint[]
LANGUAGE plpgsql AS $body$
DECLARE v_locked bigint[];
BEGIN
    FOR i IN 1..4 LOOP
        v_locked := ARRAY(SELECT x.id FROM lane x WHERE x.id = ANY (p_lanes) ORDER BY x.id FOR UPDATE SKIP LOCKED);
        EXIT WHEN cardinality(v_locked) = cardinality(p_lanes) OR i = 4;
        PERFORM pg_sleep(0.002);
    END LOOP;
    RETURN v_locked;
END $body$;

-- wake_unlocked_lanes: tokens for those of these lanes that could not be locked, whatever their head is: one for the destination and
-- level of the claim that ended, one for those of the lowest message that waits. Claim judges them under the lane's lock.
CREATE OR REPLACE FUNCTION redrive.wake_unlocked_lanes(
    p_lanes bigint[], p_destinations text[], p_levels smallint[], p_locked bigint[], p_now timestamptz
) RETURNS void LANGUAGE plpgsql AS $body$
BEGIN
    IF cardinality(p_locked) < cardinality(p_lanes) THEN
        INSERT INTO lane_wake (destination, level, due_at, lane)
        SELECT t.destination, t.level, p_now, e.lane
          FROM unnest(p_lanes, p_destinations, p_levels) AS e(lane, destination, level)
         CROSS JOIN LATERAL (SELECT e.destination, e.level
                             UNION
                             (SELECT p.destination, p.level FROM pending p WHERE p.lane = e.lane ORDER BY p.sequence LIMIT 1)) t
         WHERE e.lane <> ALL (p_locked);
    END IF;
END $body$;

-- wake_leased_lanes: a verb that changed what waits in a lane while one of its messages is in flight leaves a token for the lowest
-- message that waits now, where that is of another destination or level than the one in flight: the settle of that one may not
-- have seen the change (see wake_unlocked_lanes). The caller has locked the lanes.
CREATE OR REPLACE FUNCTION redrive.wake_leased_lanes(p_lanes bigint[], p_now timestamptz) RETURNS void
LANGUAGE plpgsql AS $body$
BEGIN
    INSERT INTO lane_wake (destination, level, due_at, lane)
    SELECT h.destination, h.level, p_now, l.id
      FROM (SELECT DISTINCT u.id FROM unnest(p_lanes) AS u(id)) l
     CROSS JOIN LATERAL (SELECT x.destination, x.level FROM lease x WHERE x.lane = l.id LIMIT 1) flying
     CROSS JOIN LATERAL (SELECT p.destination, p.level FROM pending p WHERE p.lane = l.id ORDER BY p.sequence LIMIT 1) h
     WHERE (h.destination, h.level) <> (flying.destination, flying.level);
END $body$;

CREATE OR REPLACE FUNCTION redrive.lock_lanes(p_lanes bigint[]) RETURNS void
LANGUAGE plpgsql AS $body$
BEGIN
    PERFORM 1 FROM lane x WHERE x.id = ANY (p_lanes) ORDER BY x.id FOR UPDATE;
END $body$;

-- wake_lanes: one token for each of these lanes that is free and has a head. The caller has locked them, in an earlier
-- statement. A released lane takes its turn behind those that wait already, so its token is due now, not when its message was.
-- A head that is not due yet has one token and no more, however often it is looked at.
CREATE OR REPLACE FUNCTION redrive.wake_lanes(p_lanes bigint[], p_now timestamptz) RETURNS void
LANGUAGE plpgsql AS $body$
BEGIN
    INSERT INTO lane_wake (destination, level, due_at, lane)
    SELECT h.destination, h.level, greatest(h.due_at, p_now), h.lane
      FROM redrive.free_heads(p_lanes) h
     WHERE NOT h.suspect
       AND (h.due_at <= p_now
            OR NOT EXISTS (SELECT 1 FROM lane_wake w
                            WHERE w.destination = h.destination AND w.level = h.level AND w.due_at = h.due_at
                              AND w.lane = h.lane));
END $body$;

-- free_heads: the lowest pending message of each of these lanes that is neither leased nor halted before it.
-- To be believed only where the lanes were locked in an earlier statement. ends_at: when it expires, if it may.
CREATE OR REPLACE FUNCTION redrive.free_heads(p_lanes bigint[])
RETURNS TABLE (place tid, lane bigint, destination text, level smallint, due_at timestamptz, ends_at timestamptz, suspect boolean) LANGUAGE plpgsql STABLE ROWS 10 AS $body$
#variable_conflict use_column
BEGIN
    -- Probes with LIMIT, not EXISTS: that may be planned as one hash over a whole table.
    RETURN QUERY
    SELECT h.ctid, h.lane, h.destination, h.level, h.due_at,
           CASE WHEN h.in_doubt_since IS NULL AND h.kept_answer IS NULL THEN h.expires_at END, h.suspect
      FROM (SELECT DISTINCT u.id FROM unnest(p_lanes) AS u(id)) l
     CROSS JOIN LATERAL (SELECT p.ctid, p.* FROM pending p WHERE p.lane = l.id ORDER BY p.sequence LIMIT 1) h
     WHERE (SELECT true FROM lease x WHERE x.lane = l.id LIMIT 1) IS NULL
       AND (SELECT true FROM parked k WHERE k.lane = l.id AND k.halts AND k.sequence < h.sequence LIMIT 1) IS NULL;
END $body$;

-- lane_heads: heads that may go now, at most p_rooms[i] of (p_destinations[i], p_levels[i]); room says which i.
-- Tokens are popped, their lanes locked where no other transaction holds them, and judged in the next statement. Tokens of lanes that
-- were held are put back for a little later (one for each destination that they were of: only one of them is the head's): with
-- their old time they would take the room of all others again and again.
-- A head that may not go (not due, of another destination, no room) gets its own token. Popping goes on while room is left,
-- because the tokens of a lane that is blocked lead nowhere; they are used up by that. If there are so many that there is still
-- room in the end, an empty row says so.
-- Locks: tokens and lanes with SKIP LOCKED, so it never waits.
CREATE OR REPLACE FUNCTION redrive.lane_heads(
    p_destinations text[], p_levels smallint[], p_rooms integer[], p_since timestamptz[], p_now timestamptz
) RETURNS TABLE (place tid, lane bigint, room bigint, ended boolean) LANGUAGE plpgsql AS $body$
#variable_conflict use_column
DECLARE v_left         integer[] := p_rooms;
        v_destinations text[];
        v_levels       smallint[];
        v_lanes        bigint[];
        v_locked       bigint[];
        v_seen         bigint[] := '{}';
        v_places       tid[] := '{}';
        v_of           bigint[] := '{}';
        v_rooms        bigint[] := '{}';
        v_ended        boolean[] := '{}';
        v_round        record;
BEGIN
    FOR i IN 1..5 LOOP
        WITH popped AS (
            DELETE FROM lane_wake w WHERE w.ctid = ANY (ARRAY(
                SELECT t.place
                  FROM unnest(p_destinations, p_levels, v_left, p_since) AS r(destination, level, room, since)
                 CROSS JOIN LATERAL (
                    SELECT k.ctid AS place
                      FROM lane_wake k
                     WHERE k.destination = r.destination AND k.level = r.level AND k.due_at BETWEEN coalesce(r.since, '-infinity') AND p_now
                     ORDER BY k.due_at, k.lane
                     LIMIT r.room
                       FOR UPDATE SKIP LOCKED) t))
            RETURNING w.destination, w.level, w.lane
        )
        SELECT array_agg(p.destination), array_agg(p.level), array_agg(p.lane) INTO v_destinations, v_levels, v_lanes
          FROM (SELECT DISTINCT p.* FROM popped p) p;
        EXIT WHEN v_lanes IS NULL;

        v_locked := ARRAY(SELECT x.id FROM lane x WHERE x.id = ANY (v_lanes) ORDER BY x.id FOR UPDATE SKIP LOCKED);
        IF cardinality(v_locked) < cardinality(v_lanes) THEN
            INSERT INTO lane_wake (destination, level, due_at, lane)
            SELECT t.destination, t.level, p_now + interval '50 milliseconds', t.lane
              FROM unnest(v_destinations, v_levels, v_lanes) AS t(destination, level, lane)
             WHERE t.lane NOT IN (SELECT unnest(v_locked));
        END IF;

        WITH judged AS (
            SELECT h.*, r.n, h.ends_at <= p_now AS over,
                   h.due_at <= p_now AND r.room >= row_number() OVER (PARTITION BY r.n ORDER BY h.due_at, h.lane) AS goes
              FROM redrive.free_heads(ARRAY(SELECT unnest(v_locked) EXCEPT SELECT unnest(v_seen))) h
              LEFT JOIN unnest(p_destinations, p_levels, v_left) WITH ORDINALITY AS r(destination, level, room, n)
                ON r.destination = h.destination AND r.level = h.level
             WHERE NOT h.suspect
        )
        SELECT array_agg(j.place) FILTER (WHERE j.goes) AS places,
               array_agg(j.lane) FILTER (WHERE j.goes) AS lanes,
               array_agg(j.n) FILTER (WHERE j.goes) AS rooms,
               array_agg(coalesce(j.over, false)) FILTER (WHERE j.goes) AS ended,
               array_agg(j.lane) FILTER (WHERE j.goes IS NOT TRUE) AS waiting
          INTO v_round FROM judged j;
        v_seen := v_seen || v_locked;
        IF v_round.waiting IS NOT NULL THEN
            PERFORM redrive.wake_lanes(v_round.waiting, p_now);
        END IF;
        IF v_round.places IS NOT NULL THEN
            v_places := v_places || v_round.places;
            v_of := v_of || v_round.lanes;
            v_rooms := v_rooms || v_round.rooms;
            v_ended := v_ended || v_round.ended;
            v_left := redrive.rooms_left(v_left, v_round.rooms);
        END IF;
    END LOOP;
    RETURN QUERY SELECT * FROM unnest(v_places, v_of, v_rooms, v_ended);
    IF v_lanes IS NOT NULL THEN
        RETURN NEXT;  -- the last round still found tokens: a row of nothing says that there may be more
    END IF;
END $body$;

-- next_heads: of lanes whose message has just been delivered, the heads that the same relay may have at once: not of what moves
-- money, which is never claimed ahead; of the same
-- destination (p_destinations[i] is that of p_lanes[i]), which nothing holds back and nothing limits, due, not expired, no
-- suspect.
-- The caller has locked the lanes, in an earlier statement.
CREATE OR REPLACE FUNCTION redrive.next_heads(p_lanes bigint[], p_destinations text[], p_now timestamptz) RETURNS tid[]
LANGUAGE plpgsql STABLE AS $body$
DECLARE v_open text[] := ARRAY(SELECT d.name FROM (SELECT DISTINCT u.name FROM unnest(p_destinations) AS u(name)) d
                                WHERE redrive.is_open(d.name, p_now) AND redrive.limited(ARRAY[d.name]) IS NULL
                                  AND NOT EXISTS (SELECT 1 FROM redrive.destination m WHERE m.name = d.name AND m.money));
        v_last jsonb  := jsonb_object(p_lanes::text[], p_destinations);  -- looked up by lane: a join of the two is quadratic
BEGIN
    RETURN ARRAY(
        SELECT h.place
          FROM redrive.free_heads(p_lanes) h
         WHERE NOT h.suspect AND h.due_at <= p_now AND (h.ends_at IS NULL OR h.ends_at > p_now)
           AND h.destination = ANY (v_open) AND h.destination = v_last ->> h.lane::text);
END $body$;

-- mend_lanes: lanes that are free, have a head and no token of its destination and level: there are none, and if there are it
-- is a bug of ours. Each is judged under its lock, given a token, and counted for good in `duty.mended`.
-- Looks at no more than p_lanes lanes, from where the last call ended (`duty.position`), so that a call is short however many lanes there
-- are. is_over: the last lane was reached, and the next call begins with the first one.
-- Locks: lanes with SKIP LOCKED; then the duty's row. Relies on: pending_lane, from lane to lane, so that a long lane costs one probe;
-- lane_wake_lane.
CREATE OR REPLACE FUNCTION redrive.mend_lanes_1(
    p_lanes integer, p_now timestamptz DEFAULT NULL, OUT mended integer, OUT looked_at integer, OUT is_over boolean
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
DECLARE v_now    timestamptz := coalesce(p_now, clock_timestamp());
        v_after  bigint := coalesce((SELECT d.position FROM duty d WHERE d.name = 'mend_lanes'), 0);
        v_last   bigint;
        v_lanes  bigint[];
        v_locked bigint[];
BEGIN
    WITH RECURSIVE heads AS (
        (SELECT p.lane, p.destination, p.level, 1 AS n FROM pending p WHERE p.lane > v_after ORDER BY p.lane, p.sequence LIMIT 1)
        UNION ALL
        SELECT n.lane, n.destination, n.level, h.n + 1
          FROM heads h
         CROSS JOIN LATERAL (SELECT p.lane, p.destination, p.level FROM pending p
                              WHERE p.lane > h.lane ORDER BY p.lane, p.sequence LIMIT 1) n
         WHERE h.n < p_lanes
    )
    SELECT count(*), max(h.lane), array_agg(h.lane) FILTER (WHERE NOT redrive.has_wake(h.lane, h.destination, h.level))
      INTO looked_at, v_last, v_lanes
      FROM heads h;
    mended := 0;
    is_over := looked_at < p_lanes;
    IF v_lanes IS NOT NULL THEN  -- busy and halted lanes have no token either: free_heads leaves them out
        v_lanes := ARRAY(SELECT h.lane FROM redrive.free_heads(v_lanes) h WHERE NOT h.suspect);
        v_locked := ARRAY(SELECT x.id FROM lane x WHERE x.id = ANY (v_lanes) ORDER BY x.id FOR UPDATE SKIP LOCKED);
        INSERT INTO lane_wake (destination, level, due_at, lane)
        SELECT h.destination, h.level, greatest(h.due_at, v_now), h.lane
          FROM redrive.free_heads(v_locked) h
         WHERE NOT h.suspect AND NOT redrive.has_wake(h.lane, h.destination, h.level);
        GET DIAGNOSTICS mended = ROW_COUNT;
    END IF;
    IF mended > 0 OR NOT is_over OR v_after > 0 THEN
        INSERT INTO duty AS d (name, every_seconds, mended, position)
        VALUES ('mend_lanes', 60, mend_lanes_1.mended, CASE WHEN is_over THEN 0 ELSE v_last END)
        ON CONFLICT (name) DO UPDATE SET mended = d.mended + excluded.mended, position = excluded.position;
    END IF;
END $body$;

-- has_wake: whether a lane has a token for this destination and level.
CREATE OR REPLACE FUNCTION redrive.has_wake(p_lane bigint, p_destination text, p_level smallint) RETURNS boolean
LANGUAGE plpgsql STABLE AS $body$
BEGIN
    -- OFFSET 0: by the lane, of which there are few tokens, never by the destination, of which there may be a million.
    RETURN EXISTS (SELECT 1 FROM (SELECT w.destination, w.level FROM lane_wake w WHERE w.lane = p_lane OFFSET 0) t
                    WHERE t.destination = p_destination AND t.level = p_level);
END $body$;

-- skip: the head of a key is closed, whatever blocks it, and the key goes on. An operator's act, for good: it is not sent any
-- more. Answers 'done', 'in_flight' (a relay is sending it), 'moved_on' (the head is not p_sequence any more, or another act
-- on it is under way), 'empty', 'not_found', 'evidence', 'second_person' or 'approver' (see parked.sql).
-- Locks: the lane, then the parked row if the head is parked, with SKIP LOCKED because others take it before the lane, then the
-- audit chain.
CREATE OR REPLACE FUNCTION redrive.skip_1(
    p_tenant text, p_order_by text, p_actor text, p_reason text, p_sequence bigint DEFAULT NULL, p_now timestamptz DEFAULT NULL
) RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
DECLARE v_now     timestamptz := coalesce(p_now, clock_timestamp());
        v_lane    bigint;
        v_pending pending;
        v_parked  parked;
        v_head    bigint;
        v_second  text;
BEGIN
    SELECT s.id INTO v_lane FROM stream s WHERE s.tenant = p_tenant AND s.order_by = p_order_by;
    IF NOT FOUND THEN RETURN 'not_found'; END IF;
    PERFORM redrive.lock_lanes(ARRAY[v_lane]);
    IF EXISTS (SELECT 1 FROM lease x WHERE x.lane = v_lane) THEN RETURN 'in_flight'; END IF;
    SELECT * INTO v_pending FROM pending p WHERE p.lane = v_lane ORDER BY p.sequence LIMIT 1;
    SELECT * INTO v_parked FROM parked k WHERE k.lane = v_lane AND k.halts ORDER BY k.sequence LIMIT 1;
    v_head := least(v_pending.sequence, v_parked.sequence);
    IF v_head IS NULL THEN
        RETURN 'empty';
    ELSIF v_head <> coalesce(p_sequence, v_head) THEN
        RETURN 'moved_on';
    ELSIF v_head = v_parked.sequence THEN
        SELECT * INTO v_parked FROM parked k WHERE k.id = v_parked.id FOR UPDATE SKIP LOCKED;  -- as it is now, behind the lock
        IF NOT FOUND THEN
            RETURN 'moved_on';
        ELSIF redrive.is_proven(v_parked) THEN
            RETURN 'evidence';
        END IF;
        v_second := redrive.second_person(v_parked.destination, 'skip', v_parked.id::text, p_actor, p_reason, redrive.incident(v_parked),
                                          v_now);
        IF v_second IS NOT NULL THEN RETURN v_second; END IF;
        DELETE FROM parked k WHERE k.id = v_parked.id;
        PERFORM redrive.close_parked(v_parked, 'skip', 'skipped', NULL, p_actor, p_reason, v_now);
        RETURN 'done';
    END IF;
    IF redrive.has_evidence(v_pending.id) THEN RETURN 'evidence'; END IF;
    v_second := redrive.second_person(v_pending.destination, 'skip', v_pending.id::text, p_actor, p_reason,
                                      json_build_array(v_pending.attempt, NULL, NULL, v_pending.version), v_now);
    IF v_second IS NOT NULL THEN RETURN v_second; END IF;
    DELETE FROM pending p WHERE p.id = v_pending.id;
    INSERT INTO attempt (message_id, completed_at, attempt, spent, version, in_doubt, verb, tenant, destination, stage, closed,
                         actor, reason, token)
    VALUES (v_pending.id, v_now, v_pending.attempt, v_pending.spent, v_pending.version, v_pending.in_doubt_since IS NOT NULL,
            'skip', v_pending.tenant, v_pending.destination, v_pending.stage, 'skipped', p_actor, p_reason, v_pending.token);
    PERFORM redrive.wake_lanes(ARRAY[v_lane], v_now);
    PERFORM redrive.ring(NULL, v_now);
    PERFORM redrive.audit(p_actor, 'skip', v_pending.id::text, p_reason, json_build_object('state', 'pending'),
                          json_build_object('state', 'skipped'), v_now);
    RETURN 'done';
END $body$;
