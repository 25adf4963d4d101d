-- epoch: one life of a database. A failover, a restore or a copy begins another one, and what was committed last may be missing from it:
-- a payment that was made would be made again. So from then on nothing is claimed for a destination that moves money, until the rail's
-- statement covers everything that could still show up, or two people say that it may go on (P-10). An epoch begins by a cause:
--   server     another system identifier or timeline (a promotion, a recovery to a moment, another server)
--   witness    a relay remembers money attempts that this database does not know (witness.sql)
--   statement  a rail's statement has an entry that this database does not know
--   declared   a person says so (`redrive db restored`)

-- epoch_changed: whether the server says that this is another epoch than the last one written down. About 20 µs; only for what moves money.
-- SECURITY DEFINER: is_open is for readers too.
CREATE OR REPLACE FUNCTION redrive.epoch_changed() RETURNS boolean
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = redrive, pg_temp AS $body$
BEGIN
    RETURN (SELECT (e.system_identifier, e.timeline) IS DISTINCT FROM (p.system_identifier, p.timeline)
              FROM (SELECT x.system_identifier, x.timeline FROM epoch x ORDER BY x.number DESC LIMIT 1) e
             CROSS JOIN redrive.present_epoch() p);
END $body$;

-- present_epoch: where we are. The control file names the timeline of the last checkpoint, which a promotion does not wait for.
CREATE OR REPLACE FUNCTION redrive.present_epoch(OUT system_identifier bigint, OUT timeline integer)
LANGUAGE plpgsql STABLE AS $body$
BEGIN
    SELECT s.system_identifier, ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer
      INTO present_epoch.system_identifier, present_epoch.timeline
      FROM pg_control_system() s;
END $body$;

-- watch_epoch: begins an epoch where the server is another one; puts in doubt what an earlier epoch could not get hold of. Called by
-- register and heartbeat.
-- Locks: an advisory lock that is tried, then as begin_epoch does; nothing while the epoch is the same.
CREATE OR REPLACE FUNCTION redrive.watch_epoch(p_now timestamptz) RETURNS void
LANGUAGE plpgsql AS $body$
DECLARE v_changed boolean := redrive.epoch_changed();
BEGIN
    IF v_changed IS FALSE AND NOT EXISTS (SELECT 1 FROM epoch e WHERE e.doubted_at IS NULL) THEN
        RETURN;
    ELSIF NOT pg_try_advisory_xact_lock(hashtextextended('redrive.epoch', 0)) THEN
        RETURN;  -- another session is just writing it down: no relay waits for it
    END IF;
    v_changed := redrive.epoch_changed();  -- a new look, behind the lock
    IF v_changed IS NULL THEN
        INSERT INTO epoch (number, system_identifier, timeline, began_at, doubted_at)
        SELECT 1, p.system_identifier, p.timeline, p_now, p_now FROM redrive.present_epoch() p
        ON CONFLICT (number) DO NOTHING;
    ELSIF v_changed THEN
        PERFORM redrive.begin_epoch('server', NULL, NULL, p_now);
    ELSE
        PERFORM redrive.doubt_epochs(p_now);
    END IF;
END $body$;

-- begin_epoch: writes an epoch down, pauses what moves money (or p_destination alone) with the reason 'epoch', and puts all that is
-- pending or dead there in doubt. Who paused a destination before stays named: what is in that person's name is not resumed by a
-- comparison. Answers the epoch's number. Called by functions only.
-- Locks: an advisory lock, destination rows in name order, then as put_in_doubt does, then the audit chain.
CREATE OR REPLACE FUNCTION redrive.begin_epoch(
    p_cause text, p_declared_by text, p_reason text, p_now timestamptz, p_destination text DEFAULT NULL
) RETURNS integer LANGUAGE plpgsql SET search_path = redrive, pg_temp AS $body$
DECLARE v_number integer;
        v_name   text;
        v_names  text[] := '{}';
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('redrive.epoch', 0));
    INSERT INTO epoch (number, system_identifier, timeline, began_at, cause, declared_by, reason, destination)
    SELECT coalesce((SELECT max(e.number) FROM epoch e), 0) + 1, p.system_identifier, p.timeline, p_now, p_cause, p_declared_by,
           p_reason, p_destination
      FROM redrive.present_epoch() p
    RETURNING number INTO v_number;
    FOR v_name IN SELECT d.name FROM destination d
                   WHERE d.money AND d.name = coalesce(p_destination, d.name) ORDER BY d.name FOR UPDATE LOOP
        UPDATE destination d
           SET paused_by = CASE WHEN d.paused_at IS NULL OR d.paused_until IS NOT NULL THEN 'redrive' ELSE d.paused_by END,
               paused_at = p_now, paused_until = NULL, pause_reason = 'epoch'
         WHERE d.name = v_name;
        v_names := v_names || v_name;
    END LOOP;
    PERFORM redrive.doubt_epochs(p_now);
    FOREACH v_name IN ARRAY v_names LOOP
        PERFORM redrive.audit(coalesce(p_declared_by, 'redrive'), 'pause', v_name, 'epoch', NULL,
                              json_build_object('epoch', v_number, 'cause', p_cause, 'reason', p_reason), p_now);
    END LOOP;
    RETURN v_number;
END $body$;

-- doubt_epochs: puts in doubt what the epochs ask for that could not yet. Where another transaction holds a row for longer than a
-- moment it is tried again with the next sign of life of a relay; the pause stays until then. Whether nothing is left to do.
CREATE OR REPLACE FUNCTION redrive.doubt_epochs(p_now timestamptz) RETURNS boolean
LANGUAGE plpgsql SET search_path = redrive, pg_temp AS $body$
DECLARE v_epoch record;
BEGIN
    FOR v_epoch IN SELECT e.number, e.began_at, e.destination FROM epoch e WHERE e.doubted_at IS NULL ORDER BY e.number LOOP
        BEGIN
            PERFORM redrive.put_in_doubt(
                ARRAY(SELECT d.name FROM destination d
                       WHERE d.money AND d.name = coalesce(v_epoch.destination, d.name)), p_now);
            UPDATE epoch e SET doubted_at = p_now WHERE e.number = v_epoch.number;
        EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
            RETURN false;
        END;
    END LOOP;
    RETURN true;
END $body$;

-- put_in_doubt: all messages of these destinations that wait, as pending or dead, or are in hand, may have been sent: before they are
-- sent (again) the destination is asked, or gets the same token, or a person is asked. What is in flight is settled by its answer; if
-- it is handed back instead, it is in doubt. How many.
-- Locks: parked rows in id order, lanes in id order, pending rows; leases with SKIP LOCKED, because settle takes them before lanes.
-- A row that is held for longer than a second raises lock_not_available.
CREATE OR REPLACE FUNCTION redrive.put_in_doubt(p_destinations text[], p_now timestamptz) RETURNS bigint
LANGUAGE plpgsql SET search_path = redrive, pg_temp SET lock_timeout = '1s' SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
DECLARE v_lanes bigint[];
        v_count bigint;
        v_more  bigint;
BEGIN
    PERFORM 1 FROM parked k
      WHERE k.destination = ANY (p_destinations) AND k.reason = 'dead' AND k.in_doubt_since IS NULL ORDER BY k.id FOR UPDATE;
    UPDATE parked k SET in_doubt_since = p_now, row_version = k.row_version + 1
     WHERE k.destination = ANY (p_destinations) AND k.reason = 'dead' AND k.in_doubt_since IS NULL;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_lanes := ARRAY(SELECT DISTINCT p.lane FROM pending p
                      WHERE p.destination = ANY (p_destinations) AND p.in_doubt_since IS NULL AND p.lane IS NOT NULL);
    PERFORM redrive.lock_lanes(v_lanes);
    UPDATE pending p SET in_doubt_since = p_now
     WHERE p.destination = ANY (p_destinations) AND p.in_doubt_since IS NULL AND p.kept_answer IS NULL
       AND (p.lane IS NULL OR p.lane = ANY (v_lanes));
    GET DIAGNOSTICS v_more = ROW_COUNT;
    UPDATE lease l SET in_doubt_since = p_now WHERE l.ctid = ANY (ARRAY(
        SELECT x.ctid FROM lease x WHERE x.destination = ANY (p_destinations) AND x.in_doubt_since IS NULL AND x.kept_answer IS NULL
           FOR UPDATE SKIP LOCKED));
    PERFORM redrive.wake_lanes(v_lanes, p_now);
    RETURN v_count + v_more;
END $body$;

-- declare_restored: a person says that this database was restored, copied or promoted. Pauses what moves money, and puts what waits
-- there in doubt. What it does to which destination: how many messages wait there, without a doubt so far. p_dry_run: nothing is changed.
-- Locks: as begin_epoch does.
CREATE OR REPLACE FUNCTION redrive.declare_restored_1(
    p_actor text, p_reason text, p_dry_run boolean DEFAULT false, p_now timestamptz DEFAULT NULL
) RETURNS TABLE (destination text, pending bigint, dead bigint, paused_before boolean) LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp AS $body$
#variable_conflict use_column
DECLARE v_now timestamptz := coalesce(p_now, clock_timestamp());
BEGIN
    RETURN QUERY
    SELECT d.name, (SELECT count(*) FROM pending p WHERE p.destination = d.name AND p.in_doubt_since IS NULL),
           (SELECT count(*) FROM parked k WHERE k.destination = d.name AND k.reason = 'dead' AND k.in_doubt_since IS NULL),
           redrive.is_paused(d.name, v_now)
      FROM destination d WHERE d.money ORDER BY d.name;
    IF NOT p_dry_run THEN
        PERFORM redrive.begin_epoch('declared', p_actor, p_reason, v_now);
    END IF;
END $body$;

-- note_comparison: what a destination says that it did was compared with what is here. p_began_at: when reading its statement began. Where
-- nothing was found, and the destination is paused for 'epoch' and not in a person's name, it goes on, if that reading began so long after the epoch
-- that every send before it must have shown its effect. Whether it goes on now. Called by systems.
-- Locks: the destination row, then as put_in_doubt and resume_destination do.
CREATE OR REPLACE FUNCTION redrive.note_comparison(
    p_destination text, p_began_at timestamptz, p_clean boolean, p_actor text, p_reason text, p_now timestamptz
) RETURNS boolean LANGUAGE plpgsql SET search_path = redrive, pg_temp AS $body$
DECLARE v_effects float8;
        v_since   timestamptz;
BEGIN
    INSERT INTO comparison AS c (destination, began_at, finished_at, clean) VALUES (p_destination, p_began_at, p_now, p_clean)
    ON CONFLICT (destination) DO UPDATE SET began_at = excluded.began_at, finished_at = excluded.finished_at, clean = excluded.clean
     WHERE c.began_at <= excluded.began_at;
    SELECT d.effects_within_seconds INTO v_effects FROM destination d
     WHERE d.name = p_destination AND d.pause_reason = 'epoch' AND d.paused_by = 'redrive' AND d.paused_at IS NOT NULL FOR UPDATE;
    IF NOT FOUND OR NOT p_clean OR redrive.epoch_changed() THEN RETURN false; END IF;
    SELECT max(e.began_at) INTO v_since FROM epoch e WHERE coalesce(e.destination, p_destination) = p_destination;
    IF NOT coalesce(p_began_at >= v_since + make_interval(secs => v_effects), false) OR NOT redrive.doubt_epochs(p_now) THEN
        RETURN false;
    END IF;
    PERFORM redrive.resume_destination(p_destination, p_actor, p_reason, p_now);
    RETURN true;
END $body$;
