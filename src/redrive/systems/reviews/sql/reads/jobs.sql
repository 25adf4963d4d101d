-- Jobs, newest first, behind an id. state: NULL = all; with one, of the newest 10,000.
-- Relies on: job's primary key, scanned backwards.
SELECT j.job_id, j.changelist_id, j.review_version, j.repository, j.state, j.findings_count AS findings, j.notified, j.recipients, j.created_at
  FROM (SELECT w.*, redrive_reviews.state_of_job((SELECT x FROM redrive_reviews.job x WHERE x.job_id = w.job_id)) AS state, w.findings AS findings_count,
               (SELECT count(*) FROM redrive_reviews.delivery d WHERE d.job_id = w.job_id AND d.notified_at IS NOT NULL) AS notified,
               (SELECT count(*) FROM redrive_reviews.delivery d WHERE d.job_id = w.job_id) AS recipients
          FROM (SELECT x.* FROM redrive_reviews.job x
                 WHERE x.tenant = %(tenant)s AND (%(before)s::uuid IS NULL OR x.job_id < %(before)s::uuid)
                 ORDER BY x.job_id DESC LIMIT CASE WHEN %(state)s::text IS NULL THEN %(limit)s ELSE 10000 END) w) j
 WHERE %(state)s::text IS NULL OR j.state = %(state)s
 ORDER BY j.job_id DESC
 LIMIT %(limit)s
