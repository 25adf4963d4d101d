-- What happened to a job, newest first, behind a message.
SELECT t.message_id, t.at, t.what, t.outcome, t.error_code, t.artifact_id, a.file_name, coalesce(w.row_number, v.row_number) AS row_number
  FROM redrive_evidence.timeline t
  LEFT JOIN redrive_evidence.file_job_artifact a ON a.id = t.artifact_id
  LEFT JOIN redrive_evidence.file_job_row w ON w.id = t.file_job_row_id
  LEFT JOIN redrive_evidence.file_job_row v ON v.id = a.file_job_row_id
 WHERE t.tenant = %(tenant)s AND t.file_job_id = %(file_job_id)s AND (%(before)s::uuid IS NULL OR t.message_id < %(before)s::uuid)
 ORDER BY t.message_id DESC
 LIMIT %(limit)s
