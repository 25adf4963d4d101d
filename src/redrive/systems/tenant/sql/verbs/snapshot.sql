-- redrive: after messages
-- snapshot: the numbers of each outbox and each tenant (NULL: of all that the caller may see), one row an outbox, in one statement and so
-- of one moment. Backlog and ages leave dead letters out; failed counts them.
-- processed, failures: attempts that ended within the window. Relies on: the tables of open work are small; attempt_completed.
CREATE OR REPLACE FUNCTION redrive_tenant.snapshot(p_tenant text, p_window_seconds float8, p_old_failure_retries integer,
                                                   p_now timestamptz DEFAULT NULL)
RETURNS TABLE (outbox text, backlog_size bigint, failed_pending bigint, old_failures bigint, dead_letters bigint,
               oldest_age_seconds float8, latency_mean_seconds float8, processed bigint, failures bigint)
LANGUAGE plpgsql STABLE AS $body$
#variable_conflict use_column
DECLARE v_now timestamptz := coalesce(p_now, clock_timestamp());
BEGIN
    RETURN QUERY
    WITH unprocessed AS (
        SELECT s.destination, s.retry_count, s.dead_letter, s.has_failed,
               greatest(extract(epoch FROM v_now - redrive_tenant.time_of(s.id)), 0) AS age
          FROM redrive_tenant.states s
         WHERE NOT s.is_processed AND (p_tenant IS NULL OR s.tenant = p_tenant)
    ), waiting AS (
        SELECT u.destination, count(*) FILTER (WHERE NOT u.dead_letter) AS backlog,
               count(*) FILTER (WHERE u.has_failed) AS failed,
               count(*) FILTER (WHERE u.retry_count >= p_old_failure_retries) AS old,
               count(*) FILTER (WHERE u.dead_letter) AS dead,
               max(u.age) FILTER (WHERE NOT u.dead_letter)::float8 AS oldest,
               avg(u.age) FILTER (WHERE NOT u.dead_letter)::float8 AS mean
          FROM unprocessed u GROUP BY u.destination
    ), ended AS (
        SELECT a.destination, count(*) FILTER (WHERE a.closed = 'delivered') AS processed,
               count(*) FILTER (WHERE a.settlement IN ('retry', 'park')) AS failures
          FROM redrive.attempt a
         WHERE a.completed_at > v_now - make_interval(secs => p_window_seconds) AND a.completed_at <= v_now
           AND starts_with(a.destination, 'tenant.') AND (p_tenant IS NULL OR a.tenant = p_tenant)
         GROUP BY a.destination
    ), known AS (
        SELECT w.destination FROM waiting w UNION SELECT e.destination FROM ended e
        UNION SELECT o.destination FROM redrive_tenant.outbox o
    )
    SELECT k.destination, coalesce(w.backlog, 0), coalesce(w.failed, 0), coalesce(w.old, 0), coalesce(w.dead, 0),
           coalesce(w.oldest, 0), coalesce(w.mean, 0), coalesce(e.processed, 0), coalesce(e.failures, 0)
      FROM known k LEFT JOIN waiting w USING (destination) LEFT JOIN ended e USING (destination)
     ORDER BY k.destination;
END $body$;

-- gauges_1: the same of all tenants as (outbox, measure, value), for the relay that serves metrics; window and threshold are those
-- that the outbox's relays published.
CREATE OR REPLACE FUNCTION redrive_tenant.gauges_1(p_now timestamptz DEFAULT NULL)
RETURNS TABLE (outbox text, measure text, value float8)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = redrive_tenant, pg_temp AS $body$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT s.outbox, m.measure, m.value
      FROM redrive_tenant.outbox o
      CROSS JOIN LATERAL (SELECT (o.options ->> 'WindowSeconds')::float8 AS seconds,
                                 (o.options ->> 'OldFailureRetries')::integer AS retries) w
      CROSS JOIN LATERAL redrive_tenant.snapshot(NULL, w.seconds, w.retries, p_now) s
      CROSS JOIN LATERAL (VALUES ('backlog', s.backlog_size::float8), ('failed', s.failed_pending::float8),
                                 ('old', s.old_failures::float8), ('dead', s.dead_letters::float8),
                                 ('oldest', s.oldest_age_seconds), ('latency', s.latency_mean_seconds),
                                 ('throughput', s.processed / w.seconds),
                                 ('failure_ratio', coalesce(s.failures::float8 / nullif(s.processed + s.failures, 0), 0)))
            AS m (measure, value)
     WHERE s.outbox = o.destination;
END $body$;
