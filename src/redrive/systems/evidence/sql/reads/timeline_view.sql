-- What happened, newest first; `search` is the id of a job, a case or an artifact. Looks at no more than 10,000 messages.
SELECT s.message_id, s.what, coalesce(s.outcome, '–') AS outcome, coalesce(s.error_code, '–') AS error_code, coalesce(a.file_name, '–') AS file_name,
       s.file_job_id::text AS file_job_id, s.at
  FROM (SELECT t.* FROM redrive_evidence.timeline t WHERE %(before)s::uuid IS NULL OR t.message_id < %(before)s::uuid
         ORDER BY t.message_id DESC LIMIT 10000) s
  LEFT JOIN redrive_evidence.file_job_artifact a ON a.id = s.artifact_id
  LEFT JOIN redrive_evidence.file_job_row w ON w.id = s.file_job_row_id
 WHERE %(search)s::text IS NULL OR s.file_job_id::text = %(search)s OR s.artifact_id::text = %(search)s
       OR coalesce(a.case_id, w.case_id)::text = %(search)s
 ORDER BY s.message_id DESC
 LIMIT %(limit)s
