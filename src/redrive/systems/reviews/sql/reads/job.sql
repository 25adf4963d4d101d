-- One job, or the latest version of a changelist where no version is asked for.
SELECT j.job_id, j.tenant, j.idempotency_key, j.changelist_id, j.review_version, j.repository, j.base_commit, j.head_commit,
       j.message_id, redrive_reviews.state_of_job(j) AS state, j.critic, j.findings,
       j.created_at, j.reviewed_at, j.succeeded_at
  FROM redrive_reviews.job j
 WHERE j.tenant = %(tenant)s AND j.changelist_id = %(changelist_id)s
   AND (%(review_version)s::integer IS NULL OR j.review_version = %(review_version)s)
 ORDER BY j.review_version DESC
 LIMIT 1
