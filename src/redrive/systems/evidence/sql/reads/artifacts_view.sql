-- Artifacts of the console, newest first; `search` is a file name, or the id of a job or a case. Looks at no more than 10,000.
-- Relies on: file_job_artifact's primary key, scanned backwards.
SELECT f.id::text AS artifact_id, f.file_name, f.attachment_status, f.retry_status, f.retry_count,
       coalesce(f.attachment_error_code, '–') AS error_code, f.next_retry_at, f.file_job_id::text AS file_job_id,
       (SELECT t.message_id FROM redrive_evidence.artifact_attempt t WHERE t.artifact_id = f.id ORDER BY t.number DESC LIMIT 1) AS message_id
  FROM (SELECT x.* FROM redrive_evidence.file_job_artifact x WHERE %(before)s::uuid IS NULL OR x.id < %(before)s::uuid
         ORDER BY x.id DESC LIMIT 10000) f
 WHERE %(search)s::text IS NULL OR f.file_name = %(search)s OR f.file_job_id::text = %(search)s OR f.case_id::text = %(search)s
 ORDER BY f.id DESC
 LIMIT %(limit)s
