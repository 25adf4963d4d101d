-- redrive: after transitions, rollup, events
-- Attempts. These functions are the one writer of an artifact's status.
-- Locks, in this order: the job (shared; a gate locks it alone, so that a closed job never changes), rows in id order, artifacts in id order.

-- deadline_of: when everything that is open is given up: 24 h after N1, and before N1 24 h after the seal.
CREATE OR REPLACE FUNCTION redrive_evidence.deadline_of(p_job redrive_evidence.file_job, p_deadline_seconds float8) RETURNS timestamptz
LANGUAGE sql STABLE AS $body$
    SELECT coalesce(p_job.n1_sent_at, p_job.sealed_at) + make_interval(secs => p_deadline_seconds)
$body$;

-- eligible_artifacts: which of these artifacts are to be attempted now, locked, with the number of the attempt: not attached, no attempt under
-- way, and either untried, or requeued by the scheduler, retryable, with attempts left, and due. None of a job that is closed or beyond its
-- deadline. The document filters ATTACHED alone, and would go on beyond the limit.
CREATE OR REPLACE FUNCTION redrive_evidence.eligible_artifacts_1(
    p_artifact_ids uuid[], p_attempts_max integer DEFAULT 3, p_deadline_seconds float8 DEFAULT 86400, p_now timestamptz DEFAULT NULL
) RETURNS TABLE (artifact_id uuid, attempt integer, tenant text, file_job_id uuid, file_job_row_id uuid, case_id uuid, file_name text,
                 file_type text, file_size_bytes bigint, s3_key text, sha256 text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive_evidence, redrive, pg_temp AS $body$
#variable_conflict use_column
DECLARE v_now  timestamptz := coalesce(redrive.allowed_now(p_now), clock_timestamp());
        v_jobs uuid[];
BEGIN
    PERFORM 1 FROM file_job j
      WHERE j.id IN (SELECT a.file_job_id FROM file_job_artifact a WHERE a.id = ANY (p_artifact_ids)) ORDER BY j.id FOR SHARE;
    v_jobs := ARRAY(SELECT j.id FROM file_job j
                     WHERE j.id IN (SELECT a.file_job_id FROM file_job_artifact a WHERE a.id = ANY (p_artifact_ids))
                       AND NOT j.closed AND redrive_evidence.deadline_of(j, p_deadline_seconds) > v_now);
    RETURN QUERY
    SELECT a.id, a.attempt_count + 1, a.tenant, a.file_job_id, a.file_job_row_id, a.case_id, a.file_name, a.file_type, a.file_size_bytes,
           a.s3_key, a.sha256
      FROM file_job_artifact a
     WHERE a.id = ANY (p_artifact_ids) AND a.file_job_id = ANY (v_jobs) AND a.open_attempt IS NULL
       AND a.attempt_count < p_attempts_max
       AND ((a.attachment_status = 'PENDING' AND a.retry_status = 'PENDING')
            OR (a.attachment_status = 'FAILED' AND a.retry_status = 'RETRY_SCHEDULED' AND a.is_retryable AND a.next_retry_at <= v_now))
     ORDER BY a.id FOR NO KEY UPDATE;
END $body$;

-- begin_attempt: an attempt of an eligible artifact begins; p_message_id is the message that will make it. In the transaction that holds it
-- by eligible_artifacts. Raises where the attempt cannot begin.
CREATE OR REPLACE FUNCTION redrive_evidence.begin_attempt_1(
    p_artifact_id uuid, p_attempt integer, p_message_id uuid, p_now timestamptz DEFAULT NULL
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive_evidence, redrive, pg_temp AS $body$
DECLARE v_now      timestamptz := coalesce(redrive.allowed_now(p_now), clock_timestamp());
        v_artifact redrive_evidence.file_job_artifact;
        v_next     record;
BEGIN
    SELECT * INTO STRICT v_artifact FROM file_job_artifact a WHERE a.id = p_artifact_id FOR NO KEY UPDATE;
    IF v_artifact.open_attempt IS NOT NULL OR p_attempt <> v_artifact.attempt_count + 1 THEN
        RAISE EXCEPTION 'attempt % of artifact % cannot begin: % were made, and % is under way.', p_attempt, p_artifact_id,
            v_artifact.attempt_count, coalesce(v_artifact.open_attempt::text, 'none') USING ERRCODE = '55000';
    END IF;
    v_next := redrive_evidence.after(v_artifact.attachment_status, v_artifact.retry_status, 'begun');
    UPDATE file_job_artifact a
       SET retry_status = v_next.retry, open_attempt = p_attempt, updated_at = v_now,
           last_retry_at = CASE WHEN p_attempt > 1 THEN v_now ELSE a.last_retry_at END
     WHERE a.id = p_artifact_id;
    INSERT INTO artifact_attempt (message_id, artifact_id, file_job_id, tenant, number, begun_at)
    VALUES (p_message_id, p_artifact_id, v_artifact.file_job_id, v_artifact.tenant, p_attempt, v_now);
END $body$;

-- record_attempt: what an attempt ended with, once. In the transaction that settles its message: artifact, roll-ups of the row and result event.
-- p_status: ATTACHED (p_reference: the Case API's id of it) or FAILED with a code. p_delay_seconds: after which another attempt may follow.
-- Returns recorded; known (recorded before); late (attached after it counted as failed: kept as late evidence, nothing else changes).
-- CASE_NOT_FOUND gives up the other artifacts of the case in this job that are not under way (E-10).
CREATE OR REPLACE FUNCTION redrive_evidence.record_attempt_1(
    p_message_id uuid, p_status text, p_error_code text DEFAULT NULL, p_error_message text DEFAULT NULL, p_reference text DEFAULT NULL,
    p_delay_seconds float8 DEFAULT 300, p_attempts_max integer DEFAULT 3, p_now timestamptz DEFAULT NULL
) RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive_evidence, redrive, pg_temp AS $body$
DECLARE v_now      timestamptz := coalesce(redrive.allowed_now(p_now), clock_timestamp());
        v_attempt  redrive_evidence.artifact_attempt;
        v_artifact redrive_evidence.file_job_artifact;
        v_closed   boolean;
        v_rows     uuid[];
        v_event    text;
        v_next     record;
        v_is_last  boolean;
BEGIN
    IF p_status NOT IN ('ATTACHED', 'FAILED') OR (p_status = 'FAILED' AND p_error_code IS NULL) THEN
        RAISE EXCEPTION 'the outcome of an attempt is ATTACHED, or FAILED with a code.' USING ERRCODE = '22023';
    END IF;
    SELECT * INTO v_attempt FROM artifact_attempt t WHERE t.message_id = p_message_id;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'message % is no attempt to attach evidence.', p_message_id USING ERRCODE = '22023';
    END IF;
    SELECT j.closed INTO STRICT v_closed FROM file_job j WHERE j.id = v_attempt.file_job_id FOR SHARE;
    SELECT * INTO STRICT v_artifact FROM file_job_artifact a WHERE a.id = v_attempt.artifact_id;
    v_rows := ARRAY(SELECT w.id FROM file_job_row w
                     WHERE w.file_job_id = v_artifact.file_job_id
                       AND (w.id = v_artifact.file_job_row_id OR (p_error_code = 'CASE_NOT_FOUND' AND w.case_id = v_artifact.case_id))
                     ORDER BY w.id FOR NO KEY UPDATE);
    SELECT * INTO STRICT v_artifact FROM file_job_artifact a WHERE a.id = v_attempt.artifact_id FOR NO KEY UPDATE;
    IF v_closed OR v_artifact.open_attempt IS DISTINCT FROM v_attempt.number THEN
        RETURN redrive_evidence.keep_late(v_attempt, v_artifact, p_status, p_reference, v_now);
    END IF;
    v_is_last := NOT redrive_evidence.may_retry(p_error_code) OR v_attempt.number >= p_attempts_max;
    v_event := CASE WHEN p_status = 'ATTACHED' THEN 'attached' WHEN v_is_last THEN 'gave_up' ELSE 'failed' END;
    v_next := redrive_evidence.after(v_artifact.attachment_status, v_artifact.retry_status, v_event);
    UPDATE file_job_artifact a
       SET attachment_status = v_next.attachment, retry_status = v_next.retry, attempt_count = v_attempt.number, open_attempt = NULL,
           attachment_error_code = CASE WHEN p_status = 'FAILED' THEN left(p_error_code, 64) END,
           attachment_error_message = CASE WHEN p_status = 'FAILED' THEN left(p_error_message, 2000) END,
           attached_at = CASE WHEN p_status = 'ATTACHED' THEN v_now END, attachment_reference = p_reference, scheduled_at = NULL,
           next_retry_at = CASE WHEN v_event = 'failed' THEN v_now + make_interval(secs => p_delay_seconds) END, updated_at = v_now
     WHERE a.id = v_artifact.id RETURNING * INTO v_artifact;
    UPDATE artifact_attempt t SET ended_at = v_now, status = p_status, error_code = v_artifact.attachment_error_code
     WHERE t.message_id = p_message_id;
    PERFORM redrive_evidence.announce(v_artifact, v_now);
    IF p_error_code = 'CASE_NOT_FOUND' THEN
        PERFORM redrive_evidence.give_up(
            ARRAY(SELECT a.id FROM file_job_artifact a
                   WHERE a.file_job_id = v_artifact.file_job_id AND a.case_id = v_artifact.case_id AND a.open_attempt IS NULL
                     AND a.attachment_status <> 'ATTACHED' AND a.retry_status <> 'PERMANENT_FAILED'),
            'CASE_NOT_FOUND', 'Another file of the case was refused: the case does not exist.', v_now);
    END IF;
    PERFORM redrive_evidence.roll_up(v_rows, v_now);
    RETURN 'recorded';
END $body$;

-- keep_late: an outcome that comes after its attempt was counted. A success is kept as late evidence, unless the artifact is attached.
CREATE OR REPLACE FUNCTION redrive_evidence.keep_late(
    p_attempt redrive_evidence.artifact_attempt, p_artifact redrive_evidence.file_job_artifact, p_status text, p_reference text,
    p_now timestamptz
) RETURNS text LANGUAGE plpgsql AS $body$
BEGIN
    IF p_status <> 'ATTACHED' OR p_artifact.attachment_status = 'ATTACHED' THEN
        RETURN 'known';
    END IF;
    INSERT INTO redrive_evidence.late_evidence (artifact_id, file_job_id, tenant, message_id, reference, found_at)
    VALUES (p_artifact.id, p_artifact.file_job_id, p_artifact.tenant, p_attempt.message_id, p_reference, p_now)
    ON CONFLICT DO NOTHING;
    RETURN 'late';
END $body$;

-- give_up: artifacts for which no attempt is made any more. p_code: NULL = they keep the code of their last attempt. The caller has locked the
-- job, or the rows, and rolls the rows up.
CREATE OR REPLACE FUNCTION redrive_evidence.give_up(p_artifact_ids uuid[], p_code text, p_message text, p_now timestamptz)
RETURNS integer LANGUAGE plpgsql AS $body$
DECLARE v_artifact redrive_evidence.file_job_artifact;
        v_next     record;
        v_given_up integer := 0;
BEGIN
    FOR v_artifact IN SELECT * FROM redrive_evidence.file_job_artifact a WHERE a.id = ANY (p_artifact_ids) ORDER BY a.id FOR NO KEY UPDATE
    LOOP
        v_next := redrive_evidence.after(v_artifact.attachment_status, v_artifact.retry_status, 'gave_up');
        UPDATE redrive_evidence.file_job_artifact a
           SET attachment_status = v_next.attachment, retry_status = v_next.retry, next_retry_at = NULL, scheduled_at = NULL,
               open_attempt = NULL, attachment_error_code = coalesce(p_code, a.attachment_error_code),
               attachment_error_message = coalesce(p_message, a.attachment_error_message), updated_at = p_now
         WHERE a.id = v_artifact.id RETURNING * INTO v_artifact;
        PERFORM redrive_evidence.announce(v_artifact, p_now);
        v_given_up := v_given_up + 1;
    END LOOP;
    RETURN v_given_up;
END $body$;
