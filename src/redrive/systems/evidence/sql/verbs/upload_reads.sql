-- redrive: after upload
-- What uploads, commands, pages and the API read.

-- find_upload: the job that a key was used for, or no row. An upload asks before it stores files.
CREATE OR REPLACE FUNCTION redrive_evidence.find_upload_1(p_tenant text, p_key text)
RETURNS TABLE (file_job_id uuid, archive_sha256 text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = redrive_evidence, redrive, pg_temp AS $body$
    SELECT j.id, j.archive_sha256 FROM file_job j WHERE j.tenant = p_tenant AND j.idempotency_key = p_key
$body$;

-- known_uploads: which of these are ids of jobs. Objects of the others are left over.
CREATE OR REPLACE FUNCTION redrive_evidence.known_uploads_1(p_ids uuid[]) RETURNS SETOF uuid
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = redrive_evidence, redrive, pg_temp AS $body$
    SELECT j.id FROM file_job j WHERE j.id = ANY (p_ids)
$body$;

-- progress_of: attaching (before N1), retrying (between N1 and N2) or closed.
CREATE OR REPLACE FUNCTION redrive_evidence.progress_of(p_n1 timestamptz, p_n2 timestamptz) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $body$
    SELECT CASE WHEN p_n2 IS NOT NULL THEN 'closed' WHEN p_n1 IS NOT NULL THEN 'retrying' ELSE 'attaching' END
$body$;

-- timeline: what happened to jobs, each entry a message of the engine. A reader orders by message_id, whose ids ascend in time.
DROP VIEW IF EXISTS redrive_evidence.timeline;
CREATE VIEW redrive_evidence.timeline WITH (security_invoker = true) AS
SELECT e.message_id, e.tenant, e.file_job_id, e.file_job_row_id, NULL::uuid AS artifact_id, e.event_type AS what,
       NULL::text AS outcome, NULL::text AS error_code, e.occurred_at AS at
  FROM redrive_evidence.row_event e
UNION ALL
SELECT t.message_id, t.tenant, t.file_job_id, NULL, t.artifact_id, 'attempt ' || t.number, coalesce(t.status, 'under way'), t.error_code,
       t.begun_at
  FROM redrive_evidence.artifact_attempt t
UNION ALL
SELECT r.message_id, r.tenant, r.file_job_id, NULL, r.artifact_id, r.event_type, r.status, r.error_code, r.occurred_at
  FROM redrive_evidence.artifact_event r
UNION ALL
SELECT n.message_id, n.tenant, n.file_job_id, NULL, NULL, n.notice || ' by ' || n.channel, NULL, NULL, n.created_at
  FROM redrive_evidence.notice n;
