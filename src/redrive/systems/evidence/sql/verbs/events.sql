-- The events of the contract, enqueued in the caller's transaction to the destination of their topic. Schema version 1.

-- request_row: an event that asks for attempts of a row, with all its artifacts; the worker filters them. Returns the message.
CREATE OR REPLACE FUNCTION redrive_evidence.request_row(
    p_row_id uuid, p_event_type text, p_reason text, p_headers json, p_now timestamptz
) RETURNS uuid LANGUAGE plpgsql AS $body$
DECLARE v_row   redrive_evidence.file_job_row;
        v_event uuid := redrive.new_id();
        v_body  json;
        v_id    uuid;
BEGIN
    SELECT * INTO STRICT v_row FROM redrive_evidence.file_job_row w WHERE w.id = p_row_id;
    v_body := json_build_object(
        'event_id', v_event, 'event_type', p_event_type, 'occurred_at', redrive_evidence.as_time(p_now),
        'file_job_id', v_row.file_job_id, 'file_job_row_id', v_row.id, 'case_id', v_row.case_id,
        'artifacts', (SELECT json_agg(json_build_object('artifact_id', a.id, 's3_key', a.s3_key) ORDER BY a.id)
                        FROM redrive_evidence.file_job_artifact a WHERE a.file_job_row_id = v_row.id),
        'schema_version', 1);
    IF p_reason IS NOT NULL THEN
        v_body := (v_body::jsonb || jsonb_build_object('retry_reason', p_reason))::json;
    END IF;
    SELECT e.id INTO STRICT v_id FROM redrive.enqueue_internal(
        CASE p_event_type WHEN 'EVIDENCE_ATTACH_REQUEST' THEN 'evidence.attach.requests' ELSE 'evidence.failed.requests' END,
        convert_to(v_body::text, 'UTF8'), 'evidence:event:' || v_event, v_row.tenant, p_event_type, 'application/json', p_headers,
        NULL, NULL, 1::smallint, NULL, p_now, NULL) e;
    INSERT INTO redrive_evidence.row_event (message_id, file_job_row_id, file_job_id, tenant, event_type, occurred_at)
    VALUES (v_id, v_row.id, v_row.file_job_id, v_row.tenant, p_event_type, p_now);
    RETURN v_id;
END $body$;

-- announce: the result of an artifact, as it is now.
CREATE OR REPLACE FUNCTION redrive_evidence.announce(p_artifact redrive_evidence.file_job_artifact, p_now timestamptz) RETURNS void
LANGUAGE plpgsql AS $body$
DECLARE v_event uuid := redrive.new_id();
        v_id    uuid;
BEGIN
    SELECT e.id INTO STRICT v_id FROM redrive.enqueue_internal(
        'evidence.attach.results',
        convert_to(json_build_object(
            'event_id', v_event, 'event_type', 'EvidenceArtifactResult', 'occurred_at', redrive_evidence.as_time(p_now),
            'file_job_id', p_artifact.file_job_id, 'file_job_row_id', p_artifact.file_job_row_id, 'case_id', p_artifact.case_id,
            'artifact_id', p_artifact.id, 'status', p_artifact.attachment_status,
            'error_code', p_artifact.attachment_error_code, 'error_category', p_artifact.error_category,
            'attempt_count', p_artifact.attempt_count, 'retry_count', p_artifact.retry_count,
            'retry_status', p_artifact.retry_status, 'next_retry_at', redrive_evidence.as_time(p_artifact.next_retry_at),
            'schema_version', 1)::text, 'UTF8'),
        'evidence:event:' || v_event, p_artifact.tenant, 'EvidenceArtifactResult', 'application/json', NULL, NULL, NULL, 1::smallint,
        NULL, p_now, NULL) e;
    INSERT INTO redrive_evidence.artifact_event (message_id, artifact_id, file_job_id, tenant, event_type, status, error_code, occurred_at)
    VALUES (v_id, p_artifact.id, p_artifact.file_job_id, p_artifact.tenant, 'EvidenceArtifactResult', p_artifact.attachment_status,
            p_artifact.attachment_error_code, p_now);
END $body$;

CREATE OR REPLACE FUNCTION redrive_evidence.as_time(p_at timestamptz) RETURNS text LANGUAGE sql IMMUTABLE AS $body$
    SELECT to_char(p_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
$body$;
