-- check_claims: which of these claims are still this worker's, and what has happened to their messages since: a cancel was asked for, they
-- have expired, or there is evidence that they were delivered. A relay asks before it sends what has waited in its hand, many in one
-- statement, and hands back what must not be sent any more; a claim that is not returned was lost.
-- Locks: nothing. What an open transaction has not committed is not seen. Relies on: lease's primary key, one probe per claim.
CREATE OR REPLACE FUNCTION redrive.check_claims_1(
    p_worker uuid, p_ids uuid[], p_attempts integer[], p_now timestamptz DEFAULT NULL
) RETURNS TABLE (id uuid, attempt integer, cancel_requested boolean, expired boolean, has_evidence boolean) LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
#variable_conflict use_column
DECLARE v_now timestamptz := coalesce(p_now, clock_timestamp());
BEGIN
    RETURN QUERY
    SELECT i.id, i.attempt, l.cancel_requested, coalesce(l.expires_at <= v_now, false),
           (SELECT true FROM evidence e WHERE e.message_id = i.id LIMIT 1) IS NOT NULL
      FROM unnest(p_ids, p_attempts) AS i(id, attempt)
     CROSS JOIN LATERAL (SELECT x.cancel_requested, x.expires_at FROM lease x
                          WHERE x.id = i.id AND x.attempt = i.attempt AND x.worker = p_worker LIMIT 1) l;
END $body$;
