-- epoch: one life of a database, (system identifier, timeline). A failover or a restore begins another one, and what was
-- committed last may be missing from it: a payment that was made would be made again. So nothing is claimed for a destination
-- that moves money (is_open says no) from the moment of the change, and the next sign of life of a relay writes it down and
-- pauses these destinations with the reason 'epoch', until somebody has compared the books and resumes them (I37).
-- A dump that is put back into the server it came from looks like the same epoch.

-- epoch_changed: whether this is another epoch than the last one written down. About 20 µs; only for what moves money.
-- SECURITY DEFINER: is_open is for readers too.
CREATE OR REPLACE FUNCTION redrive.epoch_changed() RETURNS boolean
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = redrive, pg_temp
AS $body$
BEGIN
    RETURN (SELECT (e.system_identifier, e.timeline) IS DISTINCT FROM (p.system_identifier, p.timeline)
              FROM (SELECT x.system_identifier, x.timeline FROM epoch x ORDER BY x.number DESC LIMIT 1) e
             CROSS JOIN redrive.present_epoch() p);
END
$body$;

-- present_epoch: where we are. The control file names the timeline of the last checkpoint, which a promotion does not wait for.
CREATE OR REPLACE FUNCTION redrive.present_epoch(OUT system_identifier bigint, OUT timeline integer)
LANGUAGE plpgsql STABLE
AS $body$
BEGIN
    SELECT s.system_identifier, ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer
      INTO present_epoch.system_identifier, present_epoch.timeline
      FROM pg_control_system() s;
END
$body$;

-- watch_epoch: write down the epoch if it is new; if it is not the first, pause what moves money. Called by register and
-- heartbeat. Whoever paused a destination before stays named: what is in his name, he resumes.
-- Locks: an advisory lock that is tried, destination rows in name order, then the audit chain; nothing while the epoch is the
-- same.
CREATE OR REPLACE FUNCTION redrive.watch_epoch(p_now timestamptz) RETURNS void LANGUAGE plpgsql
AS $body$
DECLARE
    v_changed boolean := redrive.epoch_changed();
    v_name    text;
BEGIN
    IF v_changed IS FALSE OR NOT pg_try_advisory_xact_lock(hashtextextended('redrive.epoch', 0)) THEN
        RETURN;  -- or somebody else is just writing it down: nobody waits for it
    END IF;
    v_changed := redrive.epoch_changed();  -- a new look, behind the lock
    IF v_changed IS FALSE THEN
        RETURN;
    END IF;
    INSERT INTO epoch (number, system_identifier, timeline, began_at)
    SELECT coalesce((SELECT max(e.number) FROM epoch e), 0) + 1, p.system_identifier, p.timeline, p_now
      FROM redrive.present_epoch() p
    ON CONFLICT (number) DO NOTHING;
    IF NOT FOUND OR v_changed IS NULL THEN
        RETURN;  -- seen by somebody with an older snapshot only, or it is the first
    END IF;
    FOR v_name IN SELECT d.name FROM destination d WHERE d.money ORDER BY d.name FOR UPDATE LOOP
        UPDATE destination d
           SET paused_by = CASE WHEN d.paused_at IS NULL OR d.paused_until IS NOT NULL THEN 'redrive' ELSE d.paused_by END,
               paused_at = p_now, paused_until = NULL, pause_reason = 'epoch'
         WHERE d.name = v_name;
        PERFORM redrive.audit('redrive', 'pause', v_name, 'epoch', NULL, NULL, p_now);
    END LOOP;
END
$body$;
