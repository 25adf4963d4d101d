-- Rows of the console, newest first; `search` is the id of a job or a case. Looks at no more than 10,000.
-- Relies on: file_job_row's primary key, scanned backwards.
SELECT r.id::text AS file_job_row_id, r.case_id::text AS case_id, r.evidence_status, r.row_number,
       r.evidence_attached_count || ' of ' || r.evidence_count AS attached, r.evidence_failed_count, r.file_job_id::text AS file_job_id
  FROM (SELECT x.* FROM redrive_evidence.file_job_row x WHERE %(before)s::uuid IS NULL OR x.id < %(before)s::uuid
         ORDER BY x.id DESC LIMIT 10000) r
 WHERE %(search)s::text IS NULL OR r.file_job_id::text = %(search)s OR r.case_id::text = %(search)s
 ORDER BY r.id DESC
 LIMIT %(limit)s
