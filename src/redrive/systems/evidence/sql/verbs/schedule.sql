-- redrive: after attempts
-- The retry scheduler's statements (E-03).

-- schedule_retries: up to p_limit rows that are FAILED or PARTIALLY_FAILED and have a retryable file that is due: the files are requeued, and
-- each row gets one event with all its files. Requeued again is a file whose event led to no attempt within p_requeue_seconds. Nothing of a
-- job that is closed or beyond its deadline, and nothing while the breaker of the Case API is open (is_breaker_open).
-- p_force: files that are not due yet, too. p_file_job_id: NULL = all jobs.
-- Locks: the jobs (shared), then the rows (SKIP LOCKED), then their artifacts. Relies on: idx_artifact_retry_scan, artifact_scheduled.
CREATE OR REPLACE FUNCTION redrive_evidence.schedule_retries_1(
    p_file_job_id uuid DEFAULT NULL, p_limit integer DEFAULT 200, p_attempts_max integer DEFAULT 3,
    p_deadline_seconds float8 DEFAULT 86400, p_requeue_seconds float8 DEFAULT 1800, p_force boolean DEFAULT false,
    p_reason text DEFAULT 'AUTOMATED_RETRY', p_now timestamptz DEFAULT NULL,
    OUT rows_scheduled integer, OUT artifacts_scheduled integer, OUT is_breaker_open boolean
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive_evidence, redrive, pg_temp AS $body$
DECLARE v_now  timestamptz := coalesce(redrive.allowed_now(p_now), clock_timestamp());
        v_rows uuid[];
BEGIN
    rows_scheduled := 0;
    artifacts_scheduled := 0;
    is_breaker_open := redrive_evidence.is_case_api_down(v_now);
    IF is_breaker_open THEN RETURN; END IF;
    v_rows := ARRAY(
        SELECT d.row_id FROM redrive_evidence.due_rows(v_now, p_attempts_max, p_requeue_seconds, p_force) d
          JOIN file_job j ON j.id = d.job_id
         WHERE (p_file_job_id IS NULL OR j.id = p_file_job_id) AND NOT j.closed
           AND redrive_evidence.deadline_of(j, p_deadline_seconds) > v_now
         ORDER BY d.due_at, d.row_id LIMIT p_limit);
    PERFORM 1 FROM file_job j
      WHERE j.id IN (SELECT w.file_job_id FROM file_job_row w WHERE w.id = ANY (v_rows)) ORDER BY j.id FOR SHARE;
    v_rows := ARRAY(
        SELECT w.id FROM file_job_row w
         WHERE w.id = ANY (v_rows) AND w.evidence_status IN ('PARTIALLY_FAILED', 'FAILED')
           AND EXISTS (SELECT 1 FROM file_job j WHERE j.id = w.file_job_id AND NOT j.closed)
         ORDER BY w.id FOR NO KEY UPDATE SKIP LOCKED);
    WITH requeued AS (
        UPDATE file_job_artifact a
           SET retry_status = 'RETRY_SCHEDULED', scheduled_at = v_now, next_retry_at = least(a.next_retry_at, v_now), updated_at = v_now
         WHERE a.file_job_row_id = ANY (v_rows)
           AND redrive_evidence.is_due(a, v_now, p_attempts_max, p_requeue_seconds, p_force)
        RETURNING a.file_job_row_id
    )
    SELECT count(*), array_agg(DISTINCT r.file_job_row_id) INTO artifacts_scheduled, v_rows FROM requeued r;
    rows_scheduled := coalesce(cardinality(v_rows), 0);
    PERFORM redrive_evidence.request_row(w.id, 'EVIDENCE_ATTACH_RETRY', p_reason, NULL, v_now)
       FROM unnest(v_rows) AS w(id);
END $body$;

-- is_due: whether the scheduler takes a file now.
CREATE OR REPLACE FUNCTION redrive_evidence.is_due(
    a redrive_evidence.file_job_artifact, p_now timestamptz, p_attempts_max integer, p_requeue_seconds float8, p_force boolean
) RETURNS boolean LANGUAGE sql STABLE AS $body$
    SELECT a.attachment_status = 'FAILED' AND a.is_retryable AND a.attempt_count < p_attempts_max AND a.open_attempt IS NULL
       AND ((a.retry_status = 'RETRY_FAILED' AND (p_force OR a.next_retry_at <= p_now))
            OR (a.retry_status = 'RETRY_SCHEDULED' AND a.scheduled_at <= p_now - make_interval(secs => p_requeue_seconds)))
$body$;

-- due_rows: rows with a file that is due, and since when. Relies on: idx_artifact_retry_scan, artifact_scheduled.
CREATE OR REPLACE FUNCTION redrive_evidence.due_rows(
    p_now timestamptz, p_attempts_max integer, p_requeue_seconds float8, p_force boolean
) RETURNS TABLE (job_id uuid, row_id uuid, due_at timestamptz) LANGUAGE sql STABLE AS $body$
    SELECT w.file_job_id, w.id, min(d.at)
      FROM (SELECT a.file_job_row_id, a.next_retry_at AS at FROM redrive_evidence.file_job_artifact a
             WHERE a.retry_status IN ('PENDING', 'RETRY_FAILED') AND a.retry_count < 2
               AND a.next_retry_at <= CASE WHEN p_force THEN 'infinity' ELSE p_now END
               AND a.is_retryable AND a.attempt_count < p_attempts_max AND a.open_attempt IS NULL
             UNION ALL
            SELECT a.file_job_row_id, a.scheduled_at FROM redrive_evidence.file_job_artifact a
             WHERE a.retry_status = 'RETRY_SCHEDULED' AND a.scheduled_at <= p_now - make_interval(secs => p_requeue_seconds)
               AND a.is_retryable AND a.attempt_count < p_attempts_max) d
      JOIN redrive_evidence.file_job_row w ON w.id = d.file_job_row_id
     WHERE w.evidence_status IN ('PARTIALLY_FAILED', 'FAILED')
     GROUP BY w.file_job_id, w.id
$body$;

-- is_case_api_down: whether the breaker of the destination case-api is open. Half open, retries go: one of them is its probe.
CREATE OR REPLACE FUNCTION redrive_evidence.is_case_api_down(p_now timestamptz) RETURNS boolean LANGUAGE sql STABLE AS $body$
    SELECT coalesce((SELECT redrive.breaker_state(d.breaker, d.breaker_until, p_now) = 'open'
                       FROM redrive.destination d WHERE d.name = 'case-api'), false)
$body$;

-- scheduler_ran: what the metrics say of the last run.
CREATE OR REPLACE FUNCTION redrive_evidence.scheduler_ran_1(
    p_duration_seconds float8, p_batch_size integer, p_is_breaker_open boolean, p_now timestamptz DEFAULT NULL
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive_evidence, redrive, pg_temp AS $body$
BEGIN
    INSERT INTO scheduler AS s (ran_at, duration_seconds, batch_size, breaker_open_count, events_count)
    VALUES (coalesce(redrive.allowed_now(p_now), clock_timestamp()), p_duration_seconds, p_batch_size, p_is_breaker_open::integer,
            p_batch_size)
    ON CONFLICT (id) DO UPDATE
       SET ran_at = excluded.ran_at, duration_seconds = excluded.duration_seconds, batch_size = excluded.batch_size,
           breaker_open_count = s.breaker_open_count + excluded.breaker_open_count, events_count = s.events_count + excluded.events_count;
END $body$;

-- retry_job: an operator asks for the retries of a job at once, whether they are due or not. Returns done, not_found, closed,
-- nothing_to_retry, or case_api_down.
CREATE OR REPLACE FUNCTION redrive_evidence.retry_job_1(
    p_tenant text, p_file_job_id uuid, p_actor text, p_reason text, p_attempts_max integer DEFAULT 3,
    p_deadline_seconds float8 DEFAULT 86400, p_now timestamptz DEFAULT NULL,
    OUT result text, OUT rows_scheduled integer, OUT artifacts_scheduled integer
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive_evidence, redrive, pg_temp AS $body$
DECLARE v_closed boolean;
        v_done   record;
BEGIN
    rows_scheduled := 0;
    artifacts_scheduled := 0;
    SELECT j.closed INTO v_closed FROM file_job j WHERE j.id = p_file_job_id AND j.tenant = p_tenant;
    IF NOT FOUND THEN
        result := 'not_found';
    ELSIF v_closed THEN
        result := 'closed';
    ELSE
        -- Without a bound of rows: the job's own.
        v_done := redrive_evidence.schedule_retries_1(p_file_job_id, 1000000, p_attempts_max, p_deadline_seconds, 0, true,
                                                      left('MANUAL_RETRY by ' || p_actor || ': ' || p_reason, 500), p_now);
        rows_scheduled := v_done.rows_scheduled;
        artifacts_scheduled := v_done.artifacts_scheduled;
        result := CASE WHEN v_done.is_breaker_open THEN 'case_api_down' WHEN rows_scheduled = 0 THEN 'nothing_to_retry' ELSE 'done' END;
    END IF;
END $body$;
