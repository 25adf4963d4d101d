-- The numbers of the outboxes over a window, as the options of each say or as the caller asks (redrive_tenant.snapshot).
SELECT s.outbox, s.backlog_size, s.failed_pending, s.old_failures, s.dead_letters, s.oldest_age_seconds, s.latency_mean_seconds,
       s.processed, s.failures
  FROM redrive_tenant.snapshot(%(tenant)s::text, %(window_seconds)s::float8, %(old_failure_retries)s::integer) s
