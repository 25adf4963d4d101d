-- fence: lock one claim for the rest of this transaction; false when it was lost meanwhile.
-- p_wait: false = a row that another transaction holds is not waited for; then NULL, and nothing is locked.
-- The first statement of a settle that runs user code: a reap at this moment skips the locked row (SKIP LOCKED).
-- p_worker: whose claim it has to be; relays of earlier versions do not say. Locks: the lease row.
CREATE OR REPLACE FUNCTION redrive.fence_1(p_id uuid, p_attempt integer, p_worker uuid DEFAULT NULL, p_wait boolean DEFAULT true)
RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
BEGIN
    IF p_wait THEN
        PERFORM 1 FROM lease l
          WHERE l.id = p_id AND l.attempt = p_attempt AND (p_worker IS NULL OR l.worker = p_worker) FOR UPDATE;
        RETURN FOUND;
    END IF;
    PERFORM 1 FROM lease l
      WHERE l.id = p_id AND l.attempt = p_attempt AND (p_worker IS NULL OR l.worker = p_worker) FOR UPDATE SKIP LOCKED;
    IF NOT FOUND AND EXISTS (SELECT 1 FROM lease l
                              WHERE l.id = p_id AND l.attempt = p_attempt AND (p_worker IS NULL OR l.worker = p_worker)) THEN
        RETURN NULL;
    END IF;
    RETURN FOUND;
END $body$;

-- is_leased: whether a claim is still held; asked after a handler that settled in its own transaction.
CREATE OR REPLACE FUNCTION redrive.is_leased_1(p_id uuid, p_attempt integer) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
BEGIN
    RETURN EXISTS (SELECT 1 FROM lease l WHERE l.id = p_id AND l.attempt = p_attempt);
END $body$;
