-- reap: claims that ran out come back pending: same id, unspent, in doubt, each a suspect; the archive says so (G-14).
-- A lease has run out when it is past `until` *and* the server has been ready for as long as a lease, so that an outage of
-- PostgreSQL does not turn live work into crashes (p_refused_ago: so many seconds ago it still refused to write). A jump of the clock
-- counts as an outage (clock.sql): no lease runs out sooner than a lease after the last one. A lease that ends impossibly late was given
-- by a clock that has been set back since: it gets one lease from now.
-- p_expected: what the clock says by the reckoning of the relay that asks. Where it says something else nothing is reaped, and NULL
-- returned: a jump is recorded before anything follows from it.
-- With p_worker: all claims of a worker whose process is known to be dead. Only a crash while alone counts (G-18).
-- Locks: lease rows with SKIP LOCKED, so a settle in progress wins; then lanes with SKIP LOCKED: a caller's open transaction
-- must not keep the claims of all others from coming back. What was left is reaped the next time.
CREATE OR REPLACE FUNCTION redrive.reap_1(
    p_limit integer, p_worker uuid DEFAULT NULL, p_now timestamptz DEFAULT NULL, p_refused_ago float8 DEFAULT NULL,
    p_expected timestamptz DEFAULT NULL
) RETURNS integer LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp SET jit = off AS $body$
DECLARE v_now    timestamptz := coalesce(p_now, clock_timestamp());
        v_ready  timestamptz;
        v_over   uuid[];
        v_late   uuid[];
        v_lanes  bigint[];
        v_count  integer;
BEGIN
    IF p_worker IS NULL THEN
        IF v_now NOT BETWEEN p_expected - redrive.clock_tolerance() AND p_expected + redrive.clock_tolerance() THEN
            RETURN NULL;
        END IF;
        SELECT coalesce(max(r.at), '-infinity') INTO v_ready
          FROM (SELECT redrive.server_ready_at() AS at
                UNION ALL SELECT v_now - make_interval(secs => p_refused_ago)
                UNION ALL SELECT j.noticed_at FROM clock_jump j) r
         WHERE r.at <= v_now;
    END IF;
    SELECT array_agg(o.id) FILTER (WHERE NOT o.late), array_agg(o.lane) FILTER (WHERE NOT o.late AND o.lane IS NOT NULL),
           array_agg(o.id) FILTER (WHERE o.late)
      INTO v_over, v_lanes, v_late
      FROM (SELECT l.id, l.lane, p_worker IS NULL AND l.until > v_now AS late FROM lease l
             WHERE CASE WHEN p_worker IS NOT NULL THEN l.worker = p_worker
                        WHEN l.until < v_now THEN v_now > v_ready + make_interval(secs => l.lease_seconds)
                        ELSE l.until > v_now + make_interval(secs => l.lease_seconds) + redrive.clock_tolerance() END
             LIMIT p_limit
               FOR UPDATE SKIP LOCKED) o;
    IF v_late IS NOT NULL THEN
        UPDATE lease x SET until = v_now + make_interval(secs => x.lease_seconds) WHERE x.id = ANY (v_late);
    END IF;
    IF v_lanes IS NOT NULL THEN
        v_lanes := ARRAY(SELECT x.id FROM lane x WHERE x.id = ANY (v_lanes) ORDER BY x.id FOR UPDATE SKIP LOCKED);
    END IF;
    WITH ended AS (
        DELETE FROM lease x WHERE x.id = ANY (v_over) AND (x.lane IS NULL OR x.lane = ANY (v_lanes)) RETURNING x.*
    ), archived AS (
        INSERT INTO attempt (message_id, claimed_at, completed_at, worker, attempt, spent, version, in_doubt, verb, tenant,
                             destination, stage, code, token)
        SELECT e.id, e.claimed_at, greatest(e.claimed_at, v_now), e.worker, e.attempt, e.spent, e.version, true, 'reap', e.tenant, e.destination,
               e.stage, CASE WHEN p_worker IS NULL THEN 'LEASE_RAN_OUT' ELSE 'WORKER_DIED' END, e.token
          FROM ended e
    ), back AS (
        INSERT INTO pending (id, due_at, lane, sequence, attempt, spent, lookups, crashes, version, level, suspect,
                             cancel_requested, tenant, destination, stage, expires_at, in_doubt_since, down_since,
                             first_failed_at, policy_version, kept_answer, token)
        SELECT e.id, v_now, e.lane, e.sequence, e.attempt, e.spent, e.lookups, e.crashes + e.alone::integer, e.version,
               e.level, true, e.cancel_requested, e.tenant, e.destination, e.stage, e.expires_at,
               coalesce(e.in_doubt_since, v_now), e.down_since, coalesce(e.first_failed_at, v_now), e.policy_version,
               e.kept_answer, e.token
          FROM ended e
    )
    SELECT count(*) INTO v_count FROM ended;
    IF v_lanes <> '{}' THEN
        PERFORM redrive.release_lanes(v_lanes, v_now);
    END IF;
    RETURN v_count;
END $body$;

-- server_ready_at: since when the server takes connections. The walwriter starts when recovery is over, also where the
-- postmaster itself went on; without the privilege to see it (pg_read_all_stats) the postmaster's start has to do.
CREATE OR REPLACE FUNCTION redrive.server_ready_at() RETURNS timestamptz
LANGUAGE sql VOLATILE AS $body$
    SELECT coalesce((SELECT max(a.backend_start) FROM pg_stat_activity a WHERE a.backend_type = 'walwriter'),
                    pg_postmaster_start_time())
$body$;
