-- What the database says about each destination that was ever registered or paused, by name.
-- Relies on: destination's primary key.
SELECT d.name, p.paused, CASE WHEN p.paused THEN d.pause_reason END AS pause_reason,
       CASE WHEN p.paused THEN d.paused_by END AS paused_by, CASE WHEN p.paused THEN d.paused_at END AS paused_at,
       CASE WHEN p.paused THEN d.paused_until END AS paused_until,
       redrive.breaker_state(d.breaker, d.breaker_until, n.now) AS breaker, d.breaker_changed_at, d.breaker_until,
       d.breaker_opened_at, d.breaker_trips, d.breaker_code, d.breaker_probe, d.concurrency_limit, d.rate_per_second
  FROM redrive.destination d
 CROSS JOIN (SELECT clock_timestamp() AS now OFFSET 0) n
 CROSS JOIN LATERAL (SELECT redrive.is_paused(d.name, n.now) AS paused) p
 WHERE d.name > %(after)s
 ORDER BY d.name
 LIMIT %(limit)s
