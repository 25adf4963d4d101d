-- Jobs of the console, newest first; `search` is a merchant or an archive. Looks at no more than 10,000.
-- Relies on: file_job's primary key, scanned backwards.
SELECT j.id::text AS file_job_id, j.merchant_id, j.archive_name, redrive_evidence.progress_of(j.n1_sent_at, j.n2_sent_at) AS progress,
       (SELECT count(*) FROM redrive_evidence.file_job_row w WHERE w.file_job_id = j.id) AS rows,
       (SELECT coalesce(sum(w.evidence_attached_count), 0) || ' of ' || coalesce(sum(w.evidence_count), 0)
          FROM redrive_evidence.file_job_row w WHERE w.file_job_id = j.id) AS attached,
       j.created_at
  FROM (SELECT v.* FROM (SELECT x.id, x.merchant_id, x.archive_name, x.n1_sent_at, x.n2_sent_at, x.created_at
                           FROM redrive_evidence.file_job x WHERE %(before)s::uuid IS NULL OR x.id < %(before)s::uuid
                          ORDER BY x.id DESC LIMIT 10000) v
         WHERE %(search)s::text IS NULL OR v.merchant_id = %(search)s OR v.archive_name = %(search)s OR v.id::text = %(search)s
         ORDER BY v.id DESC LIMIT %(limit)s) j
 ORDER BY j.id DESC
