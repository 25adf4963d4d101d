-- Artifacts of a job in the order of their ids, behind one; of one row, or of one status, where asked for.
-- Relies on: idx_artifact_by_job_row.
SELECT a.id AS artifact_id, a.file_job_row_id, a.case_id, a.file_name, a.file_type, a.file_size_bytes, a.s3_key, a.sha256, a.attachment_status,
       a.retry_status, a.attempt_count, a.retry_count, a.attachment_error_code, a.error_category, a.is_retryable, a.next_retry_at,
       a.attached_at, a.attachment_reference
  FROM redrive_evidence.file_job_artifact a
 WHERE a.tenant = %(tenant)s AND a.file_job_id = %(file_job_id)s
   AND (%(file_job_row_id)s::uuid IS NULL OR a.file_job_row_id = %(file_job_row_id)s::uuid)
   AND (%(status)s::text IS NULL OR a.attachment_status = %(status)s::text)
   AND (%(after)s::uuid IS NULL OR a.id > %(after)s::uuid)
 ORDER BY a.id
 LIMIT %(limit)s
