-- renew: lengthen leases of attempts that still run. Returns those that are still this worker's.
-- A row that is locked (its own settle or a cancel is at it) is not waited for, and counts as still ours.
-- Locks: lease rows with SKIP LOCKED.
CREATE OR REPLACE FUNCTION redrive.renew_1(
    p_worker uuid, p_ids uuid[], p_attempts integer[], p_lease_seconds float8, p_now timestamptz DEFAULT NULL
) RETURNS TABLE (id uuid, attempt integer) LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
#variable_conflict use_column
DECLARE v_now timestamptz := coalesce(p_now, clock_timestamp());
BEGIN
    UPDATE lease x SET until = v_now + make_interval(secs => p_lease_seconds), lease_seconds = p_lease_seconds
     WHERE x.ctid = ANY (ARRAY(
        SELECT l.place FROM unnest(p_ids, p_attempts) AS i(id, attempt)
         CROSS JOIN LATERAL (SELECT y.ctid AS place FROM lease y
                              WHERE y.id = i.id AND y.attempt = i.attempt AND y.worker = p_worker
                                FOR UPDATE SKIP LOCKED) l));
    RETURN QUERY
    SELECT i.id, i.attempt FROM unnest(p_ids, p_attempts) AS i(id, attempt)
     CROSS JOIN LATERAL (SELECT 1 FROM lease y WHERE y.id = i.id AND y.attempt = i.attempt AND y.worker = p_worker LIMIT 1) l;
END $body$;
