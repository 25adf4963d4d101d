-- redrive: after attempts
-- attach_permit: whether a message may call the Case API now, read right before the call. go; over (its attempt has an outcome, or its job is
-- closed); late (beyond the deadline, so that no attempt begins); case_gone (the Case API said of another file of this case in this job that the
-- case does not exist, E-10); unknown (the message is no attempt for this artifact). Locks nothing.
CREATE OR REPLACE FUNCTION redrive_evidence.attach_permit_1(
    p_message_id uuid, p_artifact_id uuid, p_deadline_seconds float8 DEFAULT 86400, p_now timestamptz DEFAULT NULL
) RETURNS text LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = redrive_evidence, redrive, pg_temp AS $body$
DECLARE v_now timestamptz := coalesce(redrive.allowed_now(p_now), clock_timestamp());
BEGIN
    RETURN coalesce(
        (SELECT CASE
                WHEN j.closed OR a.open_attempt IS DISTINCT FROM t.number THEN 'over'
                WHEN EXISTS (SELECT 1 FROM file_job_artifact o
                              WHERE o.case_id = a.case_id AND o.file_job_id = a.file_job_id
                                AND o.attachment_error_code = 'CASE_NOT_FOUND') THEN 'case_gone'
                WHEN redrive_evidence.deadline_of(j, p_deadline_seconds) <= v_now THEN 'late'
                ELSE 'go' END
           FROM artifact_attempt t
           JOIN file_job_artifact a ON a.id = t.artifact_id
           JOIN file_job j ON j.id = a.file_job_id
          WHERE t.message_id = p_message_id AND t.artifact_id = p_artifact_id),
        'unknown');
END $body$;
GRANT EXECUTE ON FUNCTION redrive_evidence.attach_permit_1 TO redrive_relay;

-- gate_may_open: whether it is worth to decide about N1 or N2 now: no file is untried, or none that is left is untried or to be tried again. A
-- hint without locks; the gate counts again under the job's lock. Relies on: idx_artifact_by_job_row.
CREATE OR REPLACE FUNCTION redrive_evidence.gate_may_open_1(p_file_job_id uuid) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = redrive_evidence, redrive, pg_temp AS $body$
    SELECT EXISTS (
        SELECT 1 FROM file_job j
         WHERE j.id = p_file_job_id AND j.n2_sent_at IS NULL
           AND NOT EXISTS (SELECT 1 FROM file_job_artifact a
                            WHERE a.file_job_id = j.id AND a.attachment_status <> 'ATTACHED'
                              AND CASE WHEN j.n1_sent_at IS NULL THEN a.attachment_status = 'PENDING'
                                       ELSE a.retry_status <> 'PERMANENT_FAILED' END))
$body$;
GRANT EXECUTE ON FUNCTION redrive_evidence.gate_may_open_1 TO redrive_relay;
