-- Jobs of the console, newest first; `search` is a changelist or a repository. Looks at no more than 10,000.
-- Relies on: job's primary key, scanned backwards.
SELECT j.job_id, j.changelist_id, j.review_version, j.repository, j.message_id,
       redrive_reviews.state_of_job((SELECT x FROM redrive_reviews.job x WHERE x.job_id = j.job_id)) AS state,
       coalesce(j.findings::text, '–') AS findings,
       (SELECT count(*) FILTER (WHERE d.notified_at IS NOT NULL) || ' of ' || count(*)
          FROM redrive_reviews.delivery d WHERE d.job_id = j.job_id) AS notified,
       j.created_at
  FROM (SELECT w.* FROM (SELECT x.* FROM redrive_reviews.job x
                          WHERE %(before)s::uuid IS NULL OR x.job_id < %(before)s::uuid
                          ORDER BY x.job_id DESC LIMIT 10000) w
         WHERE %(search)s::text IS NULL OR w.changelist_id = %(search)s OR w.repository = %(search)s
         ORDER BY w.job_id DESC LIMIT %(limit)s) j
 ORDER BY j.job_id DESC
