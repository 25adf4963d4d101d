-- What the database says about each destination that was ever registered or paused, by name.
-- Relies on: destination's primary key.
SELECT d.name, redrive.is_paused(d.name, clock_timestamp()) AS paused, d.pause_reason, d.paused_by, d.paused_at
  FROM redrive.destination d
 WHERE d.name > %(after)s
 ORDER BY d.name
 LIMIT %(limit)s
