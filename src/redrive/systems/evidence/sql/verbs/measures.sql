-- redrive: after schedule
-- gauge: one number of section 6 of the document, or one for each label. p_window_seconds: for rates, ratios and mean latencies.
-- Relies on: artifact_attempt_ended, idx_artifact_retry_cover, file_job_open, file_job_n2, artifact_given_up, artifact_settled.
CREATE OR REPLACE FUNCTION redrive_evidence.gauge_1(p_metric text, p_window_seconds float8 DEFAULT 3600, p_now timestamptz DEFAULT NULL)
RETURNS TABLE (label text, value float8)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = redrive_evidence, redrive, pg_temp AS $body$
DECLARE v_now   timestamptz := coalesce(redrive.allowed_now(p_now), clock_timestamp());
        v_since timestamptz := v_now - make_interval(secs => p_window_seconds);
BEGIN
    CASE p_metric
    WHEN 'first_attempt_success_rate', 'retry_success_rate' THEN
        RETURN QUERY
        SELECT NULL::text, (count(*) FILTER (WHERE t.status = 'ATTACHED'))::float8 / count(*)
          FROM artifact_attempt t
         WHERE t.ended_at > v_since AND t.ended_at <= v_now AND (t.number = 1) = (p_metric = 'first_attempt_success_rate')
        HAVING count(*) > 0;
    WHEN 'queue_depth' THEN
        RETURN QUERY
        SELECT u.label, u.value FROM (
            SELECT count(*)::float8 AS artifacts, count(DISTINCT a.file_job_row_id)::float8 AS row_count
              FROM file_job_artifact a
             WHERE a.retry_status IN ('PENDING', 'RETRY_FAILED') AND a.retry_count < 2 AND a.next_retry_at < 'infinity') q
         CROSS JOIN LATERAL (VALUES ('artifacts', q.artifacts), ('rows', q.row_count)) AS u(label, value);
    WHEN 'n2_latency' THEN
        RETURN QUERY
        SELECT NULL::text, avg(extract(epoch FROM j.n2_sent_at - j.n1_sent_at))::float8
          FROM file_job j WHERE j.n2_sent_at > v_since HAVING count(*) > 0;
    WHEN 'n2_waiting' THEN
        RETURN QUERY
        SELECT NULL::text, coalesce(max(extract(epoch FROM v_now - j.n1_sent_at)), 0)::float8
          FROM file_job j WHERE j.n2_sent_at IS NULL AND j.n1_sent_at IS NOT NULL;
    WHEN 'n2_after_last_retry' THEN
        -- Of notices in the window, and of jobs that are settled and still wait for theirs.
        RETURN QUERY
        SELECT NULL::text,
               coalesce(max(extract(epoch FROM coalesce(j.n2_sent_at, v_now) - greatest(j.n1_sent_at, l.at))), 0)::float8
          FROM file_job j
         CROSS JOIN LATERAL (SELECT max(t.ended_at) AS at FROM artifact_attempt t
                              WHERE t.artifact_id IN (SELECT a.id FROM file_job_artifact a WHERE a.file_job_id = j.id)) l
         WHERE (j.n2_sent_at > v_since AND NOT j.n2_forced)
            OR (j.n2_sent_at IS NULL AND j.n1_sent_at IS NOT NULL
                AND NOT EXISTS (SELECT 1 FROM file_job_artifact a
                                 WHERE a.file_job_id = j.id AND a.attachment_status <> 'ATTACHED'
                                   AND a.retry_status <> 'PERMANENT_FAILED'));
    WHEN 'permanent_failures' THEN
        -- A code that no taxonomy knows is shown as other: codes come from outside.
        RETURN QUERY
        SELECT redrive_evidence.shown_code(a.attachment_error_code), count(*)::float8
          FROM file_job_artifact a WHERE a.retry_status = 'PERMANENT_FAILED' GROUP BY 1;
    WHEN 'permanent_failure_ratio' THEN
        RETURN QUERY
        SELECT NULL::text, coalesce((count(*) FILTER (WHERE a.retry_status = 'PERMANENT_FAILED'))::float8 / nullif(count(*), 0), 0)
          FROM file_job_artifact a
         WHERE a.updated_at > v_since AND (a.attachment_status = 'ATTACHED' OR a.retry_status = 'PERMANENT_FAILED');
    WHEN 'late_evidence' THEN
        RETURN QUERY SELECT NULL::text, count(*)::float8 FROM late_evidence;
    WHEN 'scheduler_duration' THEN
        RETURN QUERY SELECT NULL::text, s.duration_seconds FROM scheduler s;
    WHEN 'scheduler_batch_size' THEN
        RETURN QUERY SELECT NULL::text, s.batch_size::float8 FROM scheduler s;
    WHEN 'scheduler_breaker_open' THEN
        RETURN QUERY SELECT NULL::text, s.breaker_open_count::float8 FROM scheduler s;
    WHEN 'scheduler_heartbeat' THEN
        RETURN QUERY SELECT NULL::text, extract(epoch FROM s.ran_at)::float8 FROM scheduler s;
    END CASE;
END $body$;

CREATE OR REPLACE FUNCTION redrive_evidence.shown_code(p_code text) RETURNS text LANGUAGE sql IMMUTABLE AS $body$
    SELECT CASE WHEN redrive_evidence.error_category_of(p_code) <> 'SYSTEM' OR p_code IN ('500', 'SYSTEM_ERROR', 'NOT_ATTEMPTED',
                                                                                       'OUTCOME_UNKNOWN')
                THEN p_code ELSE 'other' END
$body$;
