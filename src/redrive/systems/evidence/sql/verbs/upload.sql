-- redrive: after transitions, rollup, events
-- insert_upload: a job, its rows, its artifacts and the first event of each row, in the caller's transaction; the job is sealed.
-- p_job: {"file_job_id", "idempotency_key", "merchant_id", "notify_mail", "notify_webhook", "archive_name", "archive_sha256",
-- "archive_size_bytes"}; p_rows: [{"file_job_row_id", "row_number", "case_id", "artifacts": [{"artifact_id", "file_name", "file_type",
-- "file_size_bytes", "s3_key", "sha256"}]}]. The ids are the caller's, because the files are stored under them first.
-- Returns new; duplicate (the key was used for the same archive: that job); or conflict (for another archive: that job).
-- Locks: the unique key of the job, then as enqueue does. Relies on: file_job_idempotency_key.
CREATE OR REPLACE FUNCTION redrive_evidence.insert_upload_1(
    p_tenant text, p_job json, p_rows json, p_headers json DEFAULT NULL, p_now timestamptz DEFAULT NULL,
    OUT result text, OUT file_job_id uuid
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive_evidence, redrive, pg_temp AS $body$
#variable_conflict use_column
DECLARE v_now   timestamptz := coalesce(redrive.allowed_now(p_now), clock_timestamp());
        v_known redrive_evidence.file_job;
        v_id    uuid := (p_job ->> 'file_job_id')::uuid;
BEGIN
    INSERT INTO file_job (id, tenant, idempotency_key, merchant_id, notify_mail, notify_webhook, archive_name, archive_sha256,
                          archive_size_bytes, created_by, created_at)
    VALUES (v_id, p_tenant, p_job ->> 'idempotency_key', p_job ->> 'merchant_id', p_job ->> 'notify_mail', p_job ->> 'notify_webhook',
            p_job ->> 'archive_name', p_job ->> 'archive_sha256', (p_job ->> 'archive_size_bytes')::bigint, session_user, v_now)
    ON CONFLICT ON CONSTRAINT file_job_idempotency_key DO NOTHING;
    IF NOT FOUND THEN
        SELECT * INTO STRICT v_known FROM file_job j
         WHERE j.tenant = p_tenant AND j.idempotency_key = p_job ->> 'idempotency_key';
        file_job_id := v_known.id;
        result := CASE WHEN v_known.archive_sha256 = p_job ->> 'archive_sha256' THEN 'duplicate' ELSE 'conflict' END;
        RETURN;
    END IF;
    INSERT INTO file_job_row (id, file_job_id, tenant, row_number, case_id, created_at)
    SELECT r.file_job_row_id, v_id, p_tenant, r.row_number, r.case_id, v_now
      FROM json_to_recordset(p_rows) AS r(file_job_row_id uuid, row_number integer, case_id uuid);
    INSERT INTO file_job_artifact (id, file_job_id, file_job_row_id, tenant, case_id, file_name, file_type, file_size_bytes, s3_key,
                                   sha256, created_at, updated_at)
    SELECT a.artifact_id, v_id, r.file_job_row_id, p_tenant, r.case_id, a.file_name, a.file_type, a.file_size_bytes, a.s3_key, a.sha256,
           v_now, v_now
      FROM json_to_recordset(p_rows) AS r(file_job_row_id uuid, case_id uuid, artifacts json)
     CROSS JOIN LATERAL json_to_recordset(coalesce(r.artifacts, '[]')) AS a(artifact_id uuid, file_name text, file_type text,
                                                                          file_size_bytes bigint, s3_key text, sha256 text);
    PERFORM redrive_evidence.roll_up(ARRAY(SELECT w.id FROM file_job_row w WHERE w.file_job_id = v_id), v_now);
    UPDATE file_job j SET sealed_at = v_now WHERE j.id = v_id;
    PERFORM redrive_evidence.request_row(w.id, 'EVIDENCE_ATTACH_REQUEST', NULL, p_headers, v_now)
       FROM (SELECT r.id FROM file_job_row r WHERE r.file_job_id = v_id AND r.evidence_count > 0 ORDER BY r.row_number) w;
    file_job_id := v_id;
    result := 'new';
END $body$;
