-- Periodic work, by name; overdue: not finished for three times its period and a minute.
SELECT d.name, d.every_seconds, d.finished_at AS last_finished_at, d.result AS last_result,
       coalesce(d.finished_at, d.started_at) + make_interval(secs => 3 * d.every_seconds + 60) < %(now)s AS overdue
  FROM redrive.duty d
 ORDER BY d.name
 LIMIT %(limit)s
