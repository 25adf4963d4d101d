-- Jobs, newest first, behind an id.
-- Relies on: file_job's primary key, scanned backwards.
SELECT j.id AS file_job_id, j.merchant_id, j.archive_name, redrive_evidence.progress_of(j.n1_sent_at, j.n2_sent_at) AS progress,
       c.rows, c.artifacts, c.attached, c.failed, j.created_at
  FROM (SELECT x.id, x.merchant_id, x.archive_name, x.n1_sent_at, x.n2_sent_at, x.created_at FROM redrive_evidence.file_job x
         WHERE x.tenant = %(tenant)s AND (%(before)s::uuid IS NULL OR x.id < %(before)s::uuid)
         ORDER BY x.id DESC LIMIT %(limit)s) j
 CROSS JOIN LATERAL (SELECT count(*) AS rows, coalesce(sum(w.evidence_count), 0) AS artifacts,
                            coalesce(sum(w.evidence_attached_count), 0) AS attached, coalesce(sum(w.evidence_failed_count), 0) AS failed
                       FROM redrive_evidence.file_job_row w WHERE w.file_job_id = j.id) c
 ORDER BY j.id DESC
