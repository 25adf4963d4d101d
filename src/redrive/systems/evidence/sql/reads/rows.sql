-- Rows of a job in the order of the CSV, behind a line.
-- Relies on: file_job_row_number.
SELECT w.id AS file_job_row_id, w.row_number, w.case_id, w.evidence_status, w.evidence_count, w.evidence_attached_count,
       w.evidence_failed_count, w.evidence_failed_files, w.evidence_completed_at
  FROM redrive_evidence.file_job_row w
 WHERE w.tenant = %(tenant)s AND w.file_job_id = %(file_job_id)s AND w.row_number > %(after)s
 ORDER BY w.row_number
 LIMIT %(limit)s
