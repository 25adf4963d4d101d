-- Jobs that have not succeeded, the newest first: what an operator lists by state. Small whatever the history.
CREATE INDEX job_open ON redrive_reviews.job (job_id) WHERE succeeded_at IS NULL;
