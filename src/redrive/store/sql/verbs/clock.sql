-- Jumps of the server's clock (G-33): noticed by relays, recorded once, and everything that was dated by the clock as it was is re-dated.
-- docs/explanation/clock.md has the reasoning.
--
-- A relay compares how far this clock moved between two of its looks with how far its own monotonic clock moved. Where they differ by more
-- than clock_tolerance() it calls clock_jumped. What follows from a jump:
--   leases         reap.sql counts a lease from the jump at the earliest, and shortens one that ends impossibly late
--   pending        set back: what was due is due now, a retry keeps its delay, what a producer dated stays (redate)
--                  set forward: nothing; retries come early, once
--   destinations   set back: a rest or an open breaker keeps its length
--   duties, relays, workers, replays, requests   set back: nothing that they did lies in the future
--   expires_at     is absolute, and judged by the clock as it is

CREATE OR REPLACE FUNCTION redrive.clock_tolerance() RETURNS interval
LANGUAGE sql IMMUTABLE AS $body$
    SELECT interval '5 seconds'
$body$;

-- observe_clock: one look at the clock. at: what it says. era: the latest jump that is known, 0 = none. unfinished: a jump of which
-- something has still to be re-dated. ahead_seconds: how far beyond `at` something was written, where that cannot be: the clock
-- was set back while no relay looked. noticed, offsets, windows: the latest jumps, newest first.
-- p_steady_since, p_steady_until: over which stretch this relay has seen the clock go on without a jump. A relay that has seen none also
-- looks at the newest messages that wait: while no relay ran, producers alone have written. A recorded jump explains older messages.
-- Locks: the relay's row. Relies on: the primary keys of pending and message.
CREATE OR REPLACE FUNCTION redrive.observe_clock_1(
    p_worker uuid, p_steady_since timestamptz DEFAULT NULL, p_steady_until timestamptz DEFAULT NULL,
    p_now timestamptz DEFAULT NULL, OUT at timestamptz, OUT era bigint, OUT unfinished bigint, OUT ahead_seconds float8,
    OUT noticed timestamptz[], OUT offsets float8[], OUT windows float8[]
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp
    SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
DECLARE
    v_enqueued timestamptz;
BEGIN
    UPDATE relay r SET steady_since = p_steady_since, steady_until = p_steady_until WHERE r.worker = p_worker;
    SELECT coalesce(max(j.era), 0), min(j.era) FILTER (WHERE j.finished_at IS NULL) INTO era, unfinished FROM clock_jump j;
    SELECT array_agg(l.noticed_at ORDER BY l.era DESC), array_agg(l.offset_seconds ORDER BY l.era DESC),
           array_agg(l.window_seconds ORDER BY l.era DESC)
      INTO noticed, offsets, windows
      FROM (SELECT j.era, j.noticed_at, j.offset_seconds, j.window_seconds FROM clock_jump j ORDER BY j.era DESC LIMIT 20) l;
    at := coalesce(p_now, clock_timestamp());
    IF p_steady_until IS NULL THEN
        v_enqueued := (SELECT max(redrive.enqueued_since_jump(n.id, (SELECT max(j.written_before) FROM clock_jump j)))
                         FROM (SELECT p.id FROM pending p ORDER BY p.id DESC LIMIT 10) n);
    END IF;
    ahead_seconds := (SELECT extract(epoch FROM w.latest - observe_clock_1.at)::float8
                        FROM (SELECT greatest(v_enqueued, (SELECT max(r.seen_at) FROM relay r),
                                              (SELECT max(greatest(d.started_at, d.finished_at)) FROM duty d)) AS latest) w
                       WHERE w.latest > observe_clock_1.at + redrive.clock_tolerance());
END $body$;

-- enqueued_since_jump: when a message was enqueued; NULL where that was before the latest jump was recorded (p_written_before; NULL = none).
CREATE OR REPLACE FUNCTION redrive.enqueued_since_jump(p_id uuid, p_written_before bigint) RETURNS timestamptz
LANGUAGE plpgsql STABLE SET search_path = redrive, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
BEGIN
    RETURN (SELECT m.created_at FROM message m
             WHERE m.id = p_id AND (p_written_before IS NULL OR NOT redrive.is_older(m.xmin, p_written_before)));
END $body$;

-- clock_jumped: a relay saw the clock jump by so many seconds since the era that it knew. Several relays see the same jump: one records
-- it, the others are told its era. A relay whose own clock stood still is contradicted by one that saw the clock go on. Returns the era
-- that holds now.
-- p_window_seconds: the jump is at most so old; NULL where only observe_clock.ahead_seconds tells of it.
-- Locks: an advisory lock; destination rows in name order, duties; relays, workers and replays with SKIP LOCKED. Nothing that an application's
-- transaction holds.
CREATE OR REPLACE FUNCTION redrive.clock_jumped_1(
    p_worker uuid, p_era bigint, p_offset_seconds float8, p_window_seconds float8, p_now timestamptz DEFAULT NULL
) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp SET lock_timeout = '5s' AS $body$
DECLARE v_now      timestamptz := coalesce(p_now, clock_timestamp());
        v_era      bigint;
        v_known    float8;
        v_by       interval;
        v_expected timestamptz;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('redrive.clock', 0));
    SELECT coalesce(max(j.era), 0), coalesce(sum(j.offset_seconds) FILTER (WHERE j.era > p_era), 0) INTO v_era, v_known FROM clock_jump j;
    v_by := make_interval(secs => p_offset_seconds - v_known);
    IF (p_window_seconds IS NULL AND v_era > p_era) OR v_by BETWEEN -redrive.clock_tolerance() AND redrive.clock_tolerance() THEN
        RETURN v_era;
    END IF;
    v_expected := v_now - v_by;
    IF v_by > interval '0' AND EXISTS (
        SELECT 1 FROM relay r
         WHERE r.worker <> p_worker
           AND least(r.steady_until, v_now) - greatest(r.steady_since, v_expected) > redrive.clock_tolerance()) THEN
        RETURN v_era;
    END IF;
    v_era := v_era + 1;
    INSERT INTO clock_jump (era, noticed_at, expected_at, offset_seconds, window_seconds, noticed_by, written_before, finished_at)
    VALUES (v_era, v_now, v_expected, p_offset_seconds - v_known, p_window_seconds,
            coalesce((SELECT r.name FROM relay r WHERE r.worker = p_worker), p_worker::text), pg_current_xact_id()::text::bigint,
            CASE WHEN v_by > interval '0' THEN v_now END);
    UPDATE relay r
       SET steady_since = NULL, steady_until = NULL, seen_at = CASE WHEN r.seen_at > v_now THEN r.seen_at + v_by ELSE r.seen_at END
     WHERE r.worker = ANY (ARRAY(SELECT x.worker FROM relay x FOR UPDATE SKIP LOCKED));
    IF v_by < interval '0' THEN
        PERFORM redrive.set_back(v_by, v_now);
    END IF;
    RETURN v_era;
END $body$;

-- set_back: what there is one row of for each destination, duty, replay, request, worker or sleeping relay does not lie in the future any more.
-- Locks: as clock_jumped, which calls it.
CREATE OR REPLACE FUNCTION redrive.set_back(p_by interval, p_now timestamptz) RETURNS void
LANGUAGE plpgsql SET search_path = redrive, pg_temp AS $body$
BEGIN
    PERFORM 1 FROM destination d ORDER BY d.name FOR UPDATE;
    UPDATE destination d
       SET paused_at          = CASE WHEN d.paused_until IS NULL OR d.paused_at <= p_now THEN d.paused_at ELSE d.paused_at + p_by END,
           paused_until       = CASE WHEN d.paused_until > p_now THEN d.paused_until + p_by ELSE d.paused_until END,
           breaker_until      = CASE WHEN d.breaker_until > p_now THEN d.breaker_until + p_by ELSE d.breaker_until END,
           breaker_changed_at = CASE WHEN d.breaker_changed_at > p_now THEN d.breaker_changed_at + p_by ELSE d.breaker_changed_at END,
           breaker_opened_at  = CASE WHEN d.breaker_opened_at > p_now THEN d.breaker_opened_at + p_by ELSE d.breaker_opened_at END
     WHERE greatest(d.paused_at, d.paused_until, d.breaker_until, d.breaker_changed_at, d.breaker_opened_at) > p_now;
    UPDATE limit_key k
       SET paused_at          = CASE WHEN k.paused_until IS NULL OR k.paused_at <= p_now THEN k.paused_at ELSE k.paused_at + p_by END,
           paused_until       = CASE WHEN k.paused_until > p_now THEN k.paused_until + p_by ELSE k.paused_until END,
           breaker_until      = CASE WHEN k.breaker_until > p_now THEN k.breaker_until + p_by ELSE k.breaker_until END,
           breaker_changed_at = CASE WHEN k.breaker_changed_at > p_now THEN k.breaker_changed_at + p_by ELSE k.breaker_changed_at END,
           breaker_opened_at  = CASE WHEN k.breaker_opened_at > p_now THEN k.breaker_opened_at + p_by ELSE k.breaker_opened_at END
     WHERE greatest(k.paused_at, k.paused_until, k.breaker_until, k.breaker_changed_at, k.breaker_opened_at) > p_now;
    UPDATE limit_key_rate r SET next_at = r.next_at + p_by WHERE r.next_at > p_now;
    UPDATE duty d
       SET holder_until = CASE WHEN d.started_at > p_now THEN d.holder_until + p_by ELSE d.holder_until END,
           started_at = least(d.started_at, p_now), finished_at = least(d.finished_at, p_now)
     WHERE greatest(d.started_at, d.finished_at) > p_now;
    UPDATE replay r SET stepped_at = least(r.stepped_at, p_now), resumed_at = least(r.resumed_at, p_now)
     WHERE r.id = ANY (ARRAY(SELECT x.id FROM replay x
                              WHERE x.finished_at IS NULL AND greatest(x.stepped_at, x.resumed_at) > p_now FOR UPDATE SKIP LOCKED));
    UPDATE request q SET taken_until = q.taken_until + p_by
     WHERE q.id = ANY (ARRAY(SELECT x.id FROM request x
                              WHERE x.answered_at IS NULL AND x.taken_until > p_now FOR UPDATE SKIP LOCKED));
    UPDATE worker w SET seen_at = w.seen_at + p_by
     WHERE w.worker = ANY (ARRAY(SELECT x.worker FROM worker x WHERE x.seen_at > p_now FOR UPDATE SKIP LOCKED));
    UPDATE consumer c SET seen_at = c.seen_at + p_by
     WHERE c.name = ANY (ARRAY(SELECT x.name FROM consumer x WHERE x.seen_at > p_now FOR UPDATE SKIP LOCKED));
    DELETE FROM doorbell b WHERE b.idle_until > p_now;  -- a relay that still sleeps says so again
END $body$;

-- redate: one step over `pending`, after the clock was set back: at most p_limit rows in the order of their ids, those after p_after.
-- What was written by the clock as it was: if it was due by that clock it is due now; a retry, or the next stage, keeps its delay; a later
-- time that a producer named stays as it is. A row is re-dated once: after that it is younger than the jump. The first step also makes
-- tokens of lanes due (LANES.md): the claim that pops one finds out when its head is due.
-- next: to go on from; NULL = that was all. left_over: held by other transactions; come back for them. settled: no transaction that began
-- before the jump was noticed is open any more. p_end: all steps of a pass were settled and nothing was left over: the jump is finished.
-- Locks: tokens, lanes and pending rows, all with SKIP LOCKED; then the jump's row.
-- Relies on: pending's primary key, attempt_message, message's primary key.
CREATE OR REPLACE FUNCTION redrive.redate_1(
    p_era bigint, p_after uuid DEFAULT NULL, p_limit integer DEFAULT 1000, p_end boolean DEFAULT false,
    p_now timestamptz DEFAULT NULL, OUT next uuid, OUT redated integer, OUT left_over integer, OUT settled boolean
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
DECLARE v_now    timestamptz := coalesce(p_now, clock_timestamp());
        v_jump   clock_jump;
        v_looked uuid[];
        v_old    uuid[];
        v_lanes  bigint[];
        v_locked bigint[];
BEGIN
    redated := 0;
    left_over := 0;
    SELECT * INTO v_jump FROM clock_jump j WHERE j.era = p_era AND j.finished_at IS NULL;
    settled := v_jump.era IS NULL OR pg_snapshot_xmin(pg_current_snapshot())::text::bigint >= v_jump.written_before;
    IF v_jump.era IS NULL THEN
        RETURN;
    ELSIF p_end THEN
        UPDATE clock_jump j SET finished_at = v_now WHERE j.era = p_era;
        RETURN;
    ELSIF p_after IS NULL THEN
        UPDATE lane_wake w SET due_at = v_now
         WHERE w.ctid = ANY (ARRAY(SELECT k.ctid FROM lane_wake k
                                    WHERE k.due_at > v_now AND redrive.is_older(k.xmin, v_jump.written_before)
                                    LIMIT 10 * p_limit FOR UPDATE SKIP LOCKED));
        GET DIAGNOSTICS redated = ROW_COUNT;
        left_over := (redated >= 10 * p_limit)::integer;
    END IF;
    v_looked := ARRAY(SELECT p.id FROM pending p
                       WHERE p.id > coalesce(p_after, '00000000-0000-0000-0000-000000000000') ORDER BY p.id LIMIT p_limit);
    next := CASE WHEN cardinality(v_looked) >= p_limit THEN v_looked[p_limit] END;
    SELECT array_agg(p.id), array_agg(DISTINCT p.lane) FILTER (WHERE p.lane IS NOT NULL) INTO v_old, v_lanes
      FROM pending p
     WHERE p.id = ANY (v_looked) AND p.due_at > v_now AND redrive.is_older(p.xmin, v_jump.written_before)
       AND redrive.redated_due(p, v_jump, v_now) IS NOT NULL;
    IF v_old IS NULL AND redated = 0 THEN RETURN; END IF;
    v_locked := ARRAY(SELECT x.id FROM lane x WHERE x.id = ANY (v_lanes) ORDER BY x.id FOR UPDATE SKIP LOCKED);
    WITH free AS MATERIALIZED (
        SELECT p.id, redrive.redated_due(p, v_jump, v_now) AS due_at
          FROM pending p
         WHERE p.id = ANY (v_old) AND (p.lane IS NULL OR p.lane = ANY (v_locked))
           AND p.due_at > v_now AND redrive.is_older(p.xmin, v_jump.written_before)
           FOR UPDATE SKIP LOCKED
    ), moved AS (
        UPDATE pending p SET due_at = f.due_at FROM free f WHERE p.id = f.id AND f.due_at IS NOT NULL RETURNING p.id
    )
    SELECT redated + count(*)::integer, left_over + coalesce(cardinality(v_old), 0) - count(*)::integer INTO redated, left_over FROM moved;
    IF v_locked <> '{}' THEN
        PERFORM redrive.wake_lanes(v_locked, v_now);
    END IF;
    PERFORM redrive.ring(NULL, v_now);
    UPDATE clock_jump j SET redated = j.redated + redate_1.redated WHERE j.era = p_era AND redate_1.redated > 0;
END $body$;

-- is_older: whether a row was written by a transaction whose id is earlier.
CREATE OR REPLACE FUNCTION redrive.is_older(p_xmin xid, p_than bigint) RETURNS boolean
LANGUAGE sql STABLE AS $body$
    SELECT age(p_xmin) > age(p_than::text::xid8::xid)
$body$;

-- redated_due: when a message of the clock as it was is due by the clock as it is; NULL where it stays as it is. Whether it was written
-- before the jump: its time lies outside the stretch of the present clock in which the jump happened. Where that is not known, only what
-- was written in the future is old.
CREATE OR REPLACE FUNCTION redrive.redated_due(p redrive.pending, p_jump redrive.clock_jump, p_now timestamptz)
RETURNS timestamptz LANGUAGE plpgsql STABLE SET search_path = redrive, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
DECLARE v_written timestamptz := CASE WHEN p.attempt = 0 THEN (SELECT m.created_at FROM message m WHERE m.id = p.id)
                                      ELSE (SELECT max(a.completed_at) FROM attempt a WHERE a.message_id = p.id) END;
BEGIN
    IF v_written <= p_jump.noticed_at
       AND (p_jump.window_seconds IS NULL OR v_written >= p_jump.noticed_at - make_interval(secs => p_jump.window_seconds)) THEN
        RETURN NULL;
    ELSIF p.due_at <= greatest(p_jump.expected_at, v_written + interval '1 second') THEN
        RETURN p_now;
    ELSIF p.attempt > 0 THEN
        RETURN greatest(p.due_at + make_interval(secs => p_jump.offset_seconds), p_now);
    END IF;
    RETURN NULL;
END $body$;
