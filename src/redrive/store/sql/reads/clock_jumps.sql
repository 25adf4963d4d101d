-- Jumps of the server's clock that were noticed within a day, newest first.
SELECT j.noticed_at, j.offset_seconds, j.noticed_by, j.redated, j.finished_at IS NOT NULL AS finished
  FROM redrive.clock_jump j
 WHERE j.noticed_at > %(now)s - interval '1 day' AND j.noticed_at <= %(now)s
 ORDER BY j.era DESC
 LIMIT %(limit)s
