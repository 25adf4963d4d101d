-- One job with its totals. Addresses of notices are not read: a viewer may not see them.
SELECT j.id AS file_job_id, j.tenant, j.merchant_id, j.idempotency_key, j.archive_name, j.archive_sha256, j.archive_size_bytes,
       redrive_evidence.progress_of(j.n1_sent_at, j.n2_sent_at) AS progress, j.created_by, j.created_at, j.sealed_at, j.n1_sent_at, j.n2_sent_at,
       j.n2_forced, c.rows, c.artifacts, c.attached, c.failed
  FROM redrive_evidence.file_job j
 CROSS JOIN LATERAL (SELECT count(*) AS rows, coalesce(sum(w.evidence_count), 0) AS artifacts,
                            coalesce(sum(w.evidence_attached_count), 0) AS attached, coalesce(sum(w.evidence_failed_count), 0) AS failed
                       FROM redrive_evidence.file_job_row w WHERE w.file_job_id = j.id) c
 WHERE j.tenant = %(tenant)s AND j.id = %(file_job_id)s
