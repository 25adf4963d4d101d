-- What happened to the files of a case in all its jobs, the newest first, behind a message. retries: attempts after the first.
-- Relies on: file_job_row_case, artifact_case, row_event_row, artifact_attempt_number, artifact_event_artifact.
SELECT s.message_id, s.at, s.what, s.outcome, s.error_code, s.file_job_id, s.row_number, s.artifact_id, s.file_name, s.retries
  FROM (SELECT t.message_id, t.at, t.what, t.outcome, t.error_code, t.file_job_id, w.row_number, NULL::uuid AS artifact_id,
               NULL::text AS file_name, NULL::integer AS retries
          FROM redrive_evidence.file_job_row w
          JOIN redrive_evidence.timeline t ON t.file_job_row_id = w.id
         WHERE w.tenant = %(tenant)s AND w.case_id = %(case_id)s
        UNION ALL
        SELECT t.message_id, t.at, t.what, t.outcome, t.error_code, t.file_job_id, w.row_number, a.id, a.file_name, a.retry_count
          FROM redrive_evidence.file_job_artifact a
          JOIN redrive_evidence.file_job_row w ON w.id = a.file_job_row_id
          JOIN redrive_evidence.timeline t ON t.artifact_id = a.id
         WHERE a.tenant = %(tenant)s AND a.case_id = %(case_id)s) s
 WHERE %(before)s::uuid IS NULL OR s.message_id < %(before)s::uuid
 ORDER BY s.message_id DESC
 LIMIT %(limit)s
