-- The six roll-ups of rows, always from the artifacts.

-- rolled_up: what the roll-ups of rows should be. PENDING while an artifact is untried, COMPLETED when all are attached (also with none),
-- FAILED when all failed, else PARTIALLY_FAILED. Relies on: artifact_row.
CREATE OR REPLACE FUNCTION redrive_evidence.rolled_up(p_row_ids uuid[])
RETURNS TABLE (row_id uuid, evidence_count integer, evidence_attached_count integer, evidence_failed_count integer,
               evidence_status text, evidence_failed_files jsonb) LANGUAGE sql STABLE AS $body$
    SELECT w.id, c.whole, c.attached, c.failed,
           CASE WHEN c.whole > c.attached + c.failed THEN 'PENDING' WHEN c.attached = c.whole THEN 'COMPLETED'
                WHEN c.failed = c.whole THEN 'FAILED' ELSE 'PARTIALLY_FAILED' END,
           c.failed_files
      FROM unnest(p_row_ids) AS w(id)
     CROSS JOIN LATERAL (
        SELECT count(*)::integer AS whole, (count(*) FILTER (WHERE a.attachment_status = 'ATTACHED'))::integer AS attached,
               (count(*) FILTER (WHERE a.attachment_status = 'FAILED'))::integer AS failed,
               jsonb_agg(jsonb_build_object('artifactId', a.id, 'fileName', a.file_name, 'errorCode', a.attachment_error_code)
                         ORDER BY a.id) FILTER (WHERE a.attachment_status = 'FAILED') AS failed_files
          FROM redrive_evidence.file_job_artifact a WHERE a.file_job_row_id = w.id) c
$body$;

-- roll_up: writes them where they differ; returns the rows that did. The caller holds the rows' locks, and this is a new statement, so that
-- of two artifacts that are settled at once the second sees the first.
CREATE OR REPLACE FUNCTION redrive_evidence.roll_up(p_row_ids uuid[], p_now timestamptz) RETURNS integer LANGUAGE plpgsql AS $body$
DECLARE v_changed integer;
BEGIN
    UPDATE redrive_evidence.file_job_row w
       SET evidence_count = r.evidence_count, evidence_attached_count = r.evidence_attached_count,
           evidence_failed_count = r.evidence_failed_count, evidence_status = r.evidence_status,
           evidence_failed_files = r.evidence_failed_files,
           evidence_completed_at = CASE WHEN r.evidence_status = 'COMPLETED' THEN coalesce(w.evidence_completed_at, p_now) END
      FROM redrive_evidence.rolled_up(p_row_ids) r
     WHERE w.id = r.row_id
       AND (w.evidence_count, w.evidence_attached_count, w.evidence_failed_count, w.evidence_status, w.evidence_failed_files,
            w.evidence_completed_at IS NOT NULL)
           IS DISTINCT FROM (r.evidence_count, r.evidence_attached_count, r.evidence_failed_count, r.evidence_status::varchar,
                             r.evidence_failed_files, r.evidence_status = 'COMPLETED');
    GET DIAGNOSTICS v_changed = ROW_COUNT;
    RETURN v_changed;
END $body$;

-- rebuild_rollups: all rows of a job, from their artifacts; returns how many were wrong. Locks: the job (shared), its rows in id order.
CREATE OR REPLACE FUNCTION redrive_evidence.rebuild_rollups_1(p_file_job_id uuid, p_now timestamptz DEFAULT NULL) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive_evidence, redrive, pg_temp AS $body$
DECLARE v_rows uuid[];
BEGIN
    PERFORM 1 FROM file_job j WHERE j.id = p_file_job_id FOR SHARE;
    v_rows := ARRAY(SELECT w.id FROM file_job_row w WHERE w.file_job_id = p_file_job_id ORDER BY w.id FOR NO KEY UPDATE);
    RETURN redrive_evidence.roll_up(v_rows, coalesce(redrive.allowed_now(p_now), clock_timestamp()));
END $body$;
