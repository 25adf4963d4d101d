-- Attempts that ended, counted by slots of time: of the messages created since `floor_id`, the newest `window` attempts.
-- began: where the window does not reach back to the first slot, when it begins; else NULL.
-- Relies on: attempt_message, scanned backwards.
WITH recent AS (
    SELECT a.completed_at, a.settlement, a.closed, a.latency_ms, a.destination
      FROM redrive.attempt a
     WHERE a.message_id >= %(floor_id)s
     ORDER BY a.message_id DESC
     LIMIT %(window)s
), reach AS (
    SELECT CASE WHEN count(*) = %(window)s THEN min(r.completed_at) END AS began FROM recent r
)
SELECT floor(extract(epoch FROM r.completed_at - %(since)s) / %(slot_seconds)s)::integer AS slot,
       count(*) FILTER (WHERE r.closed = 'delivered') AS delivered,
       count(*) FILTER (WHERE r.settlement = 'retry') AS retried,
       count(*) FILTER (WHERE r.settlement = 'park') AS parked,
       percentile_cont(0.5) WITHIN GROUP (ORDER BY r.latency_ms)::float8 AS median_ms,
       percentile_cont(0.95) WITHIN GROUP (ORDER BY r.latency_ms)::float8 AS slow_ms,
       (SELECT reach.began FROM reach) AS began
  FROM recent r
 WHERE r.completed_at >= %(since)s AND r.settlement IS NOT NULL
   AND (%(destination)s::text IS NULL OR r.destination = %(destination)s)
 GROUP BY 1
 ORDER BY 1
