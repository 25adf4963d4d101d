-- The messages of an artifact, oldest first: requests of its row, attempts of its own, and results. state: of the engine.
-- It names the tables of the view timeline, because a join with the view reads them whole.
-- Relies on: row_event_row, artifact_attempt_number, artifact_event_artifact.
SELECT s.message_id, s.what, s.outcome, s.error_code, s.at, redrive.state_of(s.message_id) AS state
  FROM redrive_evidence.file_job_artifact a
 CROSS JOIN LATERAL (
    SELECT e.message_id, e.event_type AS what, NULL::text AS outcome, NULL::text AS error_code, e.occurred_at AS at
      FROM redrive_evidence.row_event e WHERE e.file_job_row_id = a.file_job_row_id
    UNION ALL
    SELECT t.message_id, 'attempt ' || t.number, coalesce(t.status, 'under way'), t.error_code, t.begun_at
      FROM redrive_evidence.artifact_attempt t WHERE t.artifact_id = a.id
    UNION ALL
    SELECT r.message_id, r.event_type, r.status, r.error_code, r.occurred_at
      FROM redrive_evidence.artifact_event r WHERE r.artifact_id = a.id) s
 WHERE a.tenant = %(tenant)s AND a.id = %(artifact_id)s
 ORDER BY s.message_id
