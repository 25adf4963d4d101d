-- expire: close pending messages whose time has passed, also where nothing claims them. Not those in doubt, and not those
-- whose answer is kept: they were sent, and wait for their lookup or their record. Nor those that evidence says were delivered.
-- One that waits in a lane may end before its turn: no later message waits because of that.
-- Locks: lanes and pending rows with SKIP LOCKED. Relies on: pending_expires.
CREATE OR REPLACE FUNCTION redrive.expire_1(p_limit integer, p_now timestamptz DEFAULT NULL) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
DECLARE v_now   timestamptz := coalesce(p_now, clock_timestamp());
        v_lanes bigint[];
        v_count integer;
BEGIN
    v_lanes := ARRAY(
        SELECT x.id FROM lane x
         WHERE x.id = ANY (ARRAY(SELECT p.lane FROM pending p
                                  WHERE p.expires_at <= v_now AND p.in_doubt_since IS NULL AND p.kept_answer IS NULL
                                  ORDER BY p.expires_at LIMIT p_limit))
         ORDER BY x.id FOR UPDATE SKIP LOCKED);
    WITH ended AS (
        DELETE FROM pending x WHERE x.ctid = ANY (ARRAY(
            SELECT p.ctid FROM pending p
             WHERE p.expires_at <= v_now AND p.in_doubt_since IS NULL AND p.kept_answer IS NULL
               AND (p.lane IS NULL OR p.lane = ANY (v_lanes)) AND NOT redrive.has_evidence(p.id)
             ORDER BY p.expires_at
             LIMIT p_limit
               FOR UPDATE SKIP LOCKED))
        RETURNING x.*
    ), archived AS (
        INSERT INTO attempt (message_id, completed_at, attempt, spent, version, verb, tenant, destination, stage, closed,
                             token)
        SELECT e.id, v_now, e.attempt, e.spent, e.version, 'expire', e.tenant, e.destination, e.stage, 'expired', e.token
          FROM ended e
    )
    SELECT count(*) INTO v_count FROM ended;
    IF v_lanes <> '{}' THEN
        PERFORM redrive.wake_lanes(v_lanes, v_now);
        PERFORM redrive.wake_leased_lanes(v_lanes, v_now);
    END IF;
    RETURN v_count;
END $body$;
