-- The latest replays of a failure group, among the newest `window` replays.
-- Relies on: replay's primary key, scanned backwards.
SELECT r.id
  FROM (SELECT x.id, x.filter FROM redrive.replay x ORDER BY x.id DESC LIMIT %(window)s) r
 WHERE r.filter ->> 'group' = %(group)s
 ORDER BY r.id DESC
 LIMIT %(limit)s
