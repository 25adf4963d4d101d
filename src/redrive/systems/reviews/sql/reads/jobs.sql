-- Jobs, newest first, behind an id. state: NULL = all.
-- Relies on: job's primary key, scanned backwards; job_open for what has not succeeded.
SELECT x.job_id, x.changelist_id, x.review_version, x.repository, redrive_reviews.state_of_job(x) AS state, x.findings,
       (SELECT count(*) FROM redrive_reviews.delivery d WHERE d.job_id = x.job_id AND d.notified_at IS NOT NULL) AS notified,
       (SELECT count(*) FROM redrive_reviews.delivery d WHERE d.job_id = x.job_id) AS recipients, x.created_at
  FROM redrive_reviews.job x
 WHERE x.tenant = %(tenant)s AND (%(before)s::uuid IS NULL OR x.job_id < %(before)s::uuid)
   AND (%(state)s::text IS NULL
        OR ((x.succeeded_at IS NULL) = (%(state)s::text <> 'succeeded') AND redrive_reviews.state_of_job(x) = %(state)s::text))
 ORDER BY x.job_id DESC
 LIMIT %(limit)s
