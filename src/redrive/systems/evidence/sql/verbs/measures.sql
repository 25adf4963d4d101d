-- redrive: after schedule
-- gauges: the numbers of section 6 of the document, as (metric, label, value). p_window_seconds: for rates, ratios and mean latencies.
-- Relies on: artifact_attempt_ended, idx_artifact_retry_cover, file_job_open, file_job_n2.
CREATE OR REPLACE FUNCTION redrive_evidence.gauges_1(p_window_seconds float8 DEFAULT 3600, p_now timestamptz DEFAULT NULL)
RETURNS TABLE (metric text, label text, value float8)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = redrive_evidence, redrive, pg_temp AS $body$
DECLARE v_now   timestamptz := coalesce(redrive.allowed_now(p_now), clock_timestamp());
        v_since timestamptz := v_now - make_interval(secs => p_window_seconds);
BEGIN
    RETURN QUERY
    SELECT CASE WHEN t.number = 1 THEN 'first_attempt_success_rate' ELSE 'retry_success_rate' END, '',
           (count(*) FILTER (WHERE t.status = 'ATTACHED'))::float8 / count(*)
      FROM artifact_attempt t WHERE t.ended_at > v_since AND t.ended_at <= v_now GROUP BY (t.number = 1);
    RETURN QUERY
    SELECT 'queue_depth', u.label, u.value FROM (
        SELECT count(*)::float8 AS artifacts, count(DISTINCT a.file_job_row_id)::float8 AS row_count
          FROM file_job_artifact a
         WHERE a.retry_status IN ('PENDING', 'RETRY_FAILED') AND a.retry_count < 2 AND a.next_retry_at IS NOT NULL) q
     CROSS JOIN LATERAL (VALUES ('artifacts', q.artifacts), ('rows', q.row_count)) AS u(label, value);
    RETURN QUERY
    SELECT 'n2_latency', '', avg(extract(epoch FROM j.n2_sent_at - j.n1_sent_at))::float8
      FROM file_job j WHERE j.n2_sent_at > v_since HAVING count(*) > 0;
    RETURN QUERY
    SELECT 'n2_waiting', '', coalesce(max(extract(epoch FROM v_now - j.n1_sent_at)), 0)::float8
      FROM file_job j WHERE j.n2_sent_at IS NULL AND j.n1_sent_at IS NOT NULL;
    -- From the last outcome to N2: of notices in the window, and of jobs that are settled and still wait for theirs.
    RETURN QUERY
    SELECT 'n2_after_last_retry', '', coalesce(max(extract(epoch FROM coalesce(j.n2_sent_at, v_now) - greatest(j.n1_sent_at, l.at))), 0)::float8
      FROM file_job j
     CROSS JOIN LATERAL (SELECT max(a.updated_at) AS at FROM file_job_artifact a WHERE a.file_job_id = j.id) l
     WHERE (j.n2_sent_at > v_since AND NOT j.n2_forced)
        OR (j.n2_sent_at IS NULL AND j.n1_sent_at IS NOT NULL
            AND NOT EXISTS (SELECT 1 FROM file_job_artifact a
                             WHERE a.file_job_id = j.id AND a.attachment_status <> 'ATTACHED' AND a.retry_status <> 'PERMANENT_FAILED'));
    RETURN QUERY
    SELECT 'permanent_failures', a.attachment_error_code::text, count(*)::float8
      FROM file_job_artifact a WHERE a.retry_status = 'PERMANENT_FAILED' GROUP BY a.attachment_error_code;
    RETURN QUERY
    SELECT 'permanent_failure_ratio', '', (count(*) FILTER (WHERE a.retry_status = 'PERMANENT_FAILED'))::float8 / count(*)
      FROM file_job_artifact a
     WHERE a.updated_at > v_since AND (a.attachment_status = 'ATTACHED' OR a.retry_status = 'PERMANENT_FAILED') HAVING count(*) > 0;
    RETURN QUERY SELECT 'late_evidence', '', count(*)::float8 FROM late_evidence;
    RETURN QUERY
    SELECT u.metric, '', u.value FROM scheduler s
     CROSS JOIN LATERAL (VALUES ('scheduler_duration', s.duration_seconds), ('scheduler_batch_size', s.batch_size::float8),
                                ('scheduler_breaker_open', s.breaker_open_count::float8),
                                ('scheduler_heartbeat_age', extract(epoch FROM v_now - s.ran_at)::float8)) AS u(metric, value);
END $body$;
