-- hand_back: claims that were not begun go back as they were, and due; nothing is spent (G-09). Returns those that were handed back.
-- A cancel that was asked for meanwhile ends the message here, unless it is in doubt, its answer is kept, or there is evidence that it was
-- delivered.
-- p_wait: false = a lease row that another transaction holds is left as it is, and not returned.
-- p_suspect: each comes back as a suspect, to be run alone in a process of its own.
-- p_limit_keys, p_seconds: what is put off because of its limit key (limit_keys.sql), for so many seconds; without seconds, for as long
-- as the key rests, is paused, or is open, and not at all where nothing holds it any more. NULL of what goes back as it was.
-- Locks: limit keys that are named, in order, to read them; lease rows in id order, then lanes in id order with SKIP LOCKED.
CREATE OR REPLACE FUNCTION redrive.hand_back_1(
    p_worker uuid, p_ids uuid[], p_attempts integer[], p_now timestamptz DEFAULT NULL, p_wait boolean DEFAULT true,
    p_suspect boolean DEFAULT false, p_seconds float8[] DEFAULT NULL, p_limit_keys text[] DEFAULT NULL
) RETURNS TABLE (id uuid, attempt integer) LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
#variable_conflict use_column
DECLARE v_now          timestamptz := coalesce(p_now, clock_timestamp());
        v_ids          uuid[];
        v_attempts     integer[];
        v_lanes        bigint[];
        v_destinations text[];
        v_levels       smallint[];
BEGIN
    IF p_limit_keys IS NOT NULL THEN
        p_seconds := redrive.put_off_seconds(p_ids, p_limit_keys, p_seconds, v_now);
    END IF;
    WITH fenced AS MATERIALIZED (
        SELECT l.*, l.cancel_requested AND l.in_doubt_since IS NULL AND l.kept_answer IS NULL
                    AND NOT redrive.has_evidence(l.id) AS cancelled, i.put_off_until, i.put_off_for
          FROM (SELECT i.id, i.attempt, v_now + make_interval(secs => i.seconds) AS put_off_until, CASE WHEN i.seconds > 0 THEN i.limit_key END AS put_off_for
                  FROM unnest(p_ids, p_attempts, p_seconds, p_limit_keys) AS i(id, attempt, seconds, limit_key)
                 ORDER BY i.id) i
         CROSS JOIN LATERAL (SELECT * FROM (SELECT x.* FROM lease x WHERE p_wait AND x.id = i.id AND x.attempt = i.attempt AND x.worker = p_worker FOR UPDATE) waited
                             UNION ALL
                             SELECT * FROM (SELECT x.* FROM lease x WHERE NOT p_wait AND x.id = i.id AND x.attempt = i.attempt AND x.worker = p_worker FOR UPDATE SKIP LOCKED) free) l
    ), gone AS (
        -- By id, never by place: a renew or cancel that we waited for has moved the row out of this statement's sight.
        DELETE FROM lease x WHERE x.id = ANY (ARRAY(SELECT f.id FROM fenced f))
    ), archived AS (
        INSERT INTO attempt (message_id, claimed_at, completed_at, worker, attempt, spent, version, in_doubt, verb, tenant,
                             destination, stage, settlement, closed, token)
        SELECT f.id, f.claimed_at, greatest(f.claimed_at, v_now), f.worker, f.attempt, f.spent, f.version, f.in_doubt_since IS NOT NULL,
               'hand_back', f.tenant, f.destination, f.stage, 'hand_back', CASE WHEN f.cancelled THEN 'cancelled' END,
               f.token
          FROM fenced f
    ), back AS (
        INSERT INTO pending (id, due_at, lane, sequence, attempt, spent, lookups, crashes, version, level, suspect,
                             cancel_requested, tenant, destination, stage, expires_at, in_doubt_since, down_since,
                             first_failed_at, policy_version, kept_answer, token, limit_key)
        SELECT f.id, greatest(least(f.due_at, v_now), f.put_off_until), f.lane, f.sequence, f.attempt, f.spent, f.lookups, f.crashes,
               f.version, f.level, f.alone OR p_suspect,
               f.cancel_requested, f.tenant, f.destination, f.stage, f.expires_at, f.in_doubt_since, f.down_since,
               f.first_failed_at, f.policy_version, f.kept_answer, f.token, f.put_off_for
          FROM fenced f WHERE NOT f.cancelled
    )
    SELECT array_agg(f.id), array_agg(f.attempt), array_agg(f.lane) FILTER (WHERE f.lane IS NOT NULL),
           array_agg(f.destination) FILTER (WHERE f.lane IS NOT NULL), array_agg(f.level) FILTER (WHERE f.lane IS NOT NULL)
      INTO v_ids, v_attempts, v_lanes, v_destinations, v_levels FROM fenced f;
    IF v_lanes IS NOT NULL THEN
        PERFORM redrive.release_free_lanes(v_lanes, v_destinations, v_levels, v_now);
    END IF;
    IF v_ids IS NOT NULL AND p_limit_keys IS NULL THEN
        PERFORM redrive.ring(NULL, v_now);  -- a relay that stops leaves them to the others
    END IF;
    RETURN QUERY SELECT * FROM unnest(v_ids, v_attempts);
END $body$;
