-- low_water: from when on there can be something due, for each (destination, level), and how long the way there took.
-- A transaction that is open elsewhere keeps dead rows alive. They lie where the due index begins, and every claim walks over
-- all of them; beside 300,000 messages that were delivered meanwhile, a claim takes five times as long. So a relay asks here now
-- and then, and lets its claims begin where there was something. What is committed later with an earlier due time than that is
-- found by the next call without p_since: a relay makes one every second.
-- Never later than 300 ms ago: most transactions that are enqueueing just now are shorter than that.
-- Locks: nothing. Relies on: pending_due, lane_wake_due; one probe each.
CREATE OR REPLACE FUNCTION redrive.low_water_1(
    p_destinations text[], p_levels smallint[], p_since timestamptz[] DEFAULT NULL, p_now timestamptz DEFAULT NULL
) RETURNS TABLE (destination text, level smallint, since timestamptz, walked_seconds float8) LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
#variable_conflict use_column
DECLARE v_newest timestamptz := coalesce(p_now, clock_timestamp()) - interval '300 milliseconds';
        v_since  timestamptz;
        v_began  timestamptz;
BEGIN
    FOR destination, level, v_since IN
        SELECT r.destination, r.level, coalesce(r.since, '-infinity')
          FROM unnest(p_destinations, p_levels, p_since) AS r(destination, level, since)
    LOOP
        v_began := clock_timestamp();
        since := least((SELECT p.due_at FROM pending p
                         WHERE p.destination = low_water_1.destination AND p.level = low_water_1.level
                           AND p.lane IS NULL AND NOT p.suspect AND p.due_at BETWEEN v_since AND v_newest
                         ORDER BY p.due_at, p.id LIMIT 1),
                       (SELECT w.due_at FROM lane_wake w
                         WHERE w.destination = low_water_1.destination AND w.level = low_water_1.level
                           AND w.due_at BETWEEN v_since AND v_newest
                         ORDER BY w.due_at, w.lane LIMIT 1),
                       v_newest);
        walked_seconds := extract(epoch FROM clock_timestamp() - v_began);
        RETURN NEXT;
    END LOOP;
END $body$;
