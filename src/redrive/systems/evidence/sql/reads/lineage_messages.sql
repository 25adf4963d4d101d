-- The messages of an artifact, oldest first: requests of its row, attempts of its own, and results. state: of the engine.
-- Relies on: row_event_row, artifact_attempt_number, artifact_event_artifact.
SELECT s.message_id, s.what, s.outcome, s.error_code, s.at, redrive.state_of(s.message_id) AS state
  FROM (SELECT t.message_id, t.what, t.outcome, t.error_code, t.at
          FROM redrive_evidence.file_job_artifact a
          JOIN redrive_evidence.timeline t ON t.artifact_id = a.id
         WHERE a.tenant = %(tenant)s AND a.id = %(artifact_id)s
        UNION ALL
        SELECT t.message_id, t.what, t.outcome, t.error_code, t.at
          FROM redrive_evidence.file_job_artifact a
          JOIN redrive_evidence.timeline t ON t.file_job_row_id = a.file_job_row_id
         WHERE a.tenant = %(tenant)s AND a.id = %(artifact_id)s) s
 ORDER BY s.message_id
