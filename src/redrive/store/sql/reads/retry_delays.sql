-- How long a destination's messages waited after each failure: of the newest `window` attempts those that are to be tried again.
-- Relies on: attempt_message, scanned backwards.
SELECT r.spent, count(*) AS attempts, percentile_cont(0.5) WITHIN GROUP (ORDER BY r.seconds)::float8 AS median_seconds,
       max(r.seconds)::float8 AS longest_seconds
  FROM (SELECT a.spent, a.settlement, a.destination, extract(epoch FROM a.due_at - a.completed_at) AS seconds
          FROM redrive.attempt a
         WHERE a.message_id >= %(floor_id)s
         ORDER BY a.message_id DESC
         LIMIT %(window)s) r
 WHERE r.settlement = 'retry' AND r.destination = %(destination)s AND r.seconds >= 0
 GROUP BY r.spent
 ORDER BY r.spent
 LIMIT 50
