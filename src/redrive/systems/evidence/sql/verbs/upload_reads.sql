-- find_upload: the job that a key was used for, or no row. An upload asks before it stores files. A caller of one tenant finds its own only.
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
