-- redrive: after attempts
-- The gates of N1 and N2 (E-06). Each is decided with the job locked alone, in a new statement: no attempt of the job is being recorded then.

-- lock_job: true where the job is sealed and not closed. Locks: the job.
CREATE OR REPLACE FUNCTION redrive_evidence.lock_job_1(p_file_job_id uuid) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive_evidence, redrive, pg_temp AS $body$
BEGIN
    PERFORM 1 FROM file_job j WHERE j.id = p_file_job_id AND j.sealed_at IS NOT NULL AND NOT j.closed FOR NO KEY UPDATE;
    RETURN FOUND;
END $body$;

-- open_jobs: jobs whose gates are not all passed, behind one. Relies on: file_job_open.
CREATE OR REPLACE FUNCTION redrive_evidence.open_jobs_1(p_after uuid, p_limit integer) RETURNS SETOF uuid
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = redrive_evidence, redrive, pg_temp AS $body$
BEGIN
    RETURN QUERY SELECT j.id FROM file_job j
                  WHERE j.n2_sent_at IS NULL AND j.sealed_at IS NOT NULL AND (p_after IS NULL OR j.id > p_after)
                  ORDER BY j.id LIMIT p_limit;
END $body$;

-- tally: a job in numbers, and its failed files. untried: without an outcome. unsettled: not attached, and untried or to be tried again.
-- recovered: attached by a retry. Relies on: idx_artifact_by_job_row.
CREATE OR REPLACE FUNCTION redrive_evidence.tally_1(
    p_file_job_id uuid, p_deadline_seconds float8, p_files_max integer, p_now timestamptz DEFAULT NULL
) RETURNS json LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = redrive_evidence, redrive, pg_temp AS $body$
DECLARE v_now timestamptz := coalesce(redrive.allowed_now(p_now), clock_timestamp());
BEGIN
    RETURN (
    SELECT json_build_object(
        'file_job_id', j.id, 'tenant', j.tenant, 'merchant_id', j.merchant_id, 'archive_name', j.archive_name,
        'notify_mail', j.notify_mail, 'notify_webhook', j.notify_webhook, 'uploaded_at', redrive_evidence.as_time(j.created_at),
        'n1_sent_at', redrive_evidence.as_time(j.n1_sent_at), 'now', redrive_evidence.as_time(v_now),
        'deadline', redrive_evidence.as_time(redrive_evidence.deadline_of(j, p_deadline_seconds)),
        'n2_by', redrive_evidence.as_time(coalesce(j.n1_sent_at, v_now) + make_interval(secs => p_deadline_seconds)),
        'overdue_seconds', extract(epoch FROM v_now - redrive_evidence.deadline_of(j, p_deadline_seconds))::float8,
        'cases', (SELECT count(DISTINCT w.case_id) FROM file_job_row w WHERE w.file_job_id = j.id),
        'total', c.total, 'attached', c.attached, 'recovered', c.recovered, 'permanent_failed', c.permanent_failed, 'waiting', c.waiting,
        'untried', c.untried, 'in_flight', c.in_flight, 'unsettled', c.unsettled,
        'errors', (SELECT coalesce(json_agg(e ORDER BY e.files DESC, e.error_code), '[]')
                     FROM (SELECT a.attachment_error_code AS error_code, a.error_category, count(*) AS files,
                                  count(*) FILTER (WHERE a.retry_status = 'PERMANENT_FAILED') AS permanent_failed
                             FROM file_job_artifact a WHERE a.file_job_id = j.id AND a.attachment_status = 'FAILED'
                            GROUP BY 1, 2) e),
        'files', (SELECT coalesce(json_agg(f ORDER BY f.row_number, f.file_name), '[]')
                    FROM (SELECT w.row_number, w.case_id, a.file_name, a.attachment_error_code AS error_code, a.retry_status
                            FROM file_job_artifact a JOIN file_job_row w ON w.id = a.file_job_row_id
                           WHERE a.file_job_id = j.id AND a.attachment_status = 'FAILED'
                           ORDER BY w.row_number, a.file_name LIMIT p_files_max) f))
      FROM file_job j
     CROSS JOIN LATERAL (
        SELECT count(*) AS total, count(*) FILTER (WHERE a.attachment_status = 'ATTACHED') AS attached,
               count(*) FILTER (WHERE a.attachment_status = 'ATTACHED' AND a.retry_count > 0) AS recovered,
               count(*) FILTER (WHERE a.retry_status = 'PERMANENT_FAILED') AS permanent_failed,
               count(*) FILTER (WHERE a.attachment_status = 'FAILED' AND a.retry_status <> 'PERMANENT_FAILED') AS waiting,
               count(*) FILTER (WHERE a.attachment_status = 'PENDING') AS untried,
               count(*) FILTER (WHERE a.open_attempt IS NOT NULL) AS in_flight,
               count(*) FILTER (WHERE a.attachment_status <> 'ATTACHED' AND a.retry_status <> 'PERMANENT_FAILED') AS unsettled
          FROM file_job_artifact a WHERE a.file_job_id = j.id) c
     WHERE j.id = p_file_job_id);
END $body$;

-- expire: beyond the deadline. Files that are not under way are given up: NOT_ATTEMPTED where no attempt had an outcome, else with the code of
-- the last one. p_only_untried: for N1. p_with_in_flight: also those under way, whose outcome is not known by then (OUTCOME_UNKNOWN).
-- p_gives_up_waiting: what waits for a retry, too.
-- The caller holds the job (lock_job). Returns how many were given up.
CREATE OR REPLACE FUNCTION redrive_evidence.expire_1(
    p_file_job_id uuid, p_only_untried boolean, p_with_in_flight boolean, p_gives_up_waiting boolean, p_now timestamptz DEFAULT NULL
) RETURNS integer LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive_evidence, redrive, pg_temp AS $body$
DECLARE v_now      timestamptz := coalesce(redrive.allowed_now(p_now), clock_timestamp());
        v_given_up integer := 0;
        v_rows     uuid[];
BEGIN
    v_rows := ARRAY(SELECT w.id FROM file_job_row w WHERE w.file_job_id = p_file_job_id ORDER BY w.id FOR NO KEY UPDATE);
    IF p_with_in_flight THEN
        v_given_up := redrive_evidence.give_up(
            ARRAY(SELECT a.id FROM file_job_artifact a
                   WHERE a.file_job_id = p_file_job_id AND a.open_attempt IS NOT NULL
                     AND (a.attachment_status = 'PENDING' OR NOT p_only_untried)),
            'OUTCOME_UNKNOWN', 'The Case API did not say in time whether it has the file.', v_now);
    END IF;
    v_given_up := v_given_up + redrive_evidence.give_up(
        ARRAY(SELECT a.id FROM file_job_artifact a
               WHERE a.file_job_id = p_file_job_id AND a.open_attempt IS NULL AND a.attachment_status = 'PENDING'),
        'NOT_ATTEMPTED', 'No attempt had an outcome before the deadline.', v_now);
    IF p_gives_up_waiting AND NOT p_only_untried THEN
        v_given_up := v_given_up + redrive_evidence.give_up(
            ARRAY(SELECT a.id FROM file_job_artifact a
                   WHERE a.file_job_id = p_file_job_id AND a.open_attempt IS NULL AND a.attachment_status = 'FAILED'
                     AND a.retry_status <> 'PERMANENT_FAILED'),
            NULL, NULL, v_now);
    END IF;
    PERFORM redrive_evidence.roll_up(v_rows, v_now);
    RETURN v_given_up;
END $body$;

-- pass_gate: N1 or N2 is sent; its messages are enqueued in this transaction. The job is closed by N2. The caller holds the job.
CREATE OR REPLACE FUNCTION redrive_evidence.pass_gate_1(
    p_file_job_id uuid, p_notice text, p_is_forced boolean, p_now timestamptz DEFAULT NULL
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive_evidence, redrive, pg_temp AS $body$
DECLARE v_now timestamptz := coalesce(redrive.allowed_now(p_now), clock_timestamp());
BEGIN
    UPDATE file_job j
       SET n1_sent_at = CASE WHEN p_notice = 'N1' THEN v_now ELSE j.n1_sent_at END,
           n2_sent_at = CASE WHEN p_notice = 'N2' THEN v_now ELSE j.n2_sent_at END,
           n2_forced = j.n2_forced OR (p_notice = 'N2' AND p_is_forced)
     WHERE j.id = p_file_job_id AND CASE p_notice WHEN 'N1' THEN j.n1_sent_at IS NULL ELSE j.n2_sent_at IS NULL END;
    IF NOT FOUND THEN
        RAISE EXCEPTION '% of upload % was sent before.', p_notice, p_file_job_id USING ERRCODE = '55000';
    END IF;
END $body$;

-- keep_notice: the message of a notice, and what it says.
CREATE OR REPLACE FUNCTION redrive_evidence.keep_notice_1(
    p_message_id uuid, p_file_job_id uuid, p_notice text, p_channel text, p_summary json, p_now timestamptz DEFAULT NULL
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive_evidence, redrive, pg_temp AS $body$
BEGIN
    INSERT INTO notice (message_id, file_job_id, tenant, notice, channel, summary, created_at)
    SELECT p_message_id, j.id, j.tenant, p_notice, p_channel, p_summary, coalesce(redrive.allowed_now(p_now), clock_timestamp())
      FROM file_job j WHERE j.id = p_file_job_id;
END $body$;
