-- Where an artifact comes from: its archive, its row and the stored file. By the artifact's id.
SELECT j.id AS file_job_id, j.merchant_id, j.archive_name, j.archive_sha256, j.created_at, w.id AS file_job_row_id, w.row_number, w.case_id,
       w.evidence_status, a.id AS artifact_id, a.file_name, a.file_type, a.file_size_bytes, a.s3_key, a.sha256, a.attachment_status,
       a.retry_status, a.attempt_count, a.retry_count, a.attachment_error_code, a.error_category, a.is_retryable, a.next_retry_at,
       a.attached_at, a.attachment_reference
  FROM redrive_evidence.file_job_artifact a
  JOIN redrive_evidence.file_job_row w ON w.id = a.file_job_row_id
  JOIN redrive_evidence.file_job j ON j.id = a.file_job_id
 WHERE a.tenant = %(tenant)s AND a.id = %(artifact_id)s
