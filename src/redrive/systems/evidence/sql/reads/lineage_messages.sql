-- The messages of an artifact, oldest first: requests of its row, attempts of its own, and results. state: of the engine.
SELECT t.message_id, t.what, t.outcome, t.error_code, t.at, redrive.state_of(t.message_id) AS state
  FROM redrive_evidence.timeline t
  JOIN redrive_evidence.file_job_artifact a ON a.id = %(artifact_id)s
 WHERE t.tenant = %(tenant)s AND (t.artifact_id = a.id OR t.file_job_row_id = a.file_job_row_id)
 ORDER BY t.message_id
