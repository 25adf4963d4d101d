-- What happened to the files of a case in all its jobs, the newest first, behind a message. retries: attempts after the first.
-- It names the tables of the view timeline, because a join with the view reads them whole.
-- Relies on: file_job_row_case, artifact_case, row_event_row, artifact_attempt_number, artifact_event_artifact.
SELECT s.message_id, s.at, s.what, s.outcome, s.error_code, s.file_job_id, s.row_number, s.artifact_id, s.file_name, s.retries
  FROM (SELECT e.message_id, e.occurred_at AS at, e.event_type AS what, NULL::text AS outcome, NULL::text AS error_code, e.file_job_id,
               w.row_number, NULL::uuid AS artifact_id, NULL::text AS file_name, NULL::integer AS retries
          FROM redrive_evidence.file_job_row w
          JOIN redrive_evidence.row_event e ON e.file_job_row_id = w.id
         WHERE w.tenant = %(tenant)s AND w.case_id = %(case_id)s
        UNION ALL
        SELECT t.message_id, t.at, t.what, t.outcome, t.error_code, a.file_job_id, w.row_number, a.id, a.file_name, a.retry_count
          FROM redrive_evidence.file_job_artifact a
          JOIN redrive_evidence.file_job_row w ON w.id = a.file_job_row_id
         CROSS JOIN LATERAL (
            SELECT n.message_id, n.begun_at AS at, 'attempt ' || n.number AS what, coalesce(n.status, 'under way') AS outcome, n.error_code
              FROM redrive_evidence.artifact_attempt n WHERE n.artifact_id = a.id
            UNION ALL
            SELECT r.message_id, r.occurred_at, r.event_type, r.status, r.error_code
              FROM redrive_evidence.artifact_event r WHERE r.artifact_id = a.id) t
         WHERE a.tenant = %(tenant)s AND a.case_id = %(case_id)s) s
 WHERE %(before)s::uuid IS NULL OR s.message_id < %(before)s::uuid
 ORDER BY s.message_id DESC
 LIMIT %(limit)s
