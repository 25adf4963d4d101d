-- What waits, is in hand and is parked, by destination; also destinations that are known and have nothing.
-- One pass over the three small tables, of which no more than `most` rows of each are counted: where there are as many, `capped` is true
-- for the whole, and the counts are lower bounds. Then what is oldest among the unordered comes from the index.
-- Relies on: pending_due.
-- handled: a relay that was seen within `live_seconds` has it (G-29).
WITH waiting AS (
    SELECT p.destination AS name, count(*) AS pending, count(*) FILTER (WHERE p.due_at <= %(now)s) AS due,
           count(*) FILTER (WHERE p.first_failed_at IS NOT NULL AND NOT p.suspect) AS retrying,
           count(*) FILTER (WHERE p.suspect) AS suspects,
           min(p.due_at) AS oldest_due_at
      FROM (SELECT x.destination, x.due_at, x.first_failed_at, x.suspect FROM redrive.pending x LIMIT %(most)s) p
     GROUP BY p.destination
), leased AS (
    SELECT l.destination AS name, count(*) AS leased
      FROM (SELECT x.destination FROM redrive.lease x LIMIT %(most)s) l GROUP BY l.destination
), parked AS (
    SELECT k.destination AS name, count(*) FILTER (WHERE k.reason = 'dead') AS dead,
           count(*) FILTER (WHERE k.reason = 'held') AS held, count(*) FILTER (WHERE k.reason = 'unrecorded') AS unrecorded
      FROM (SELECT x.destination, x.reason FROM redrive.parked x LIMIT %(most)s) k GROUP BY k.destination
), handled AS (
    SELECT DISTINCT unnest(r.destinations) AS name FROM redrive.relay r
     WHERE r.seen_at > %(now)s - make_interval(secs => %(live_seconds)s) AND NOT r.stopping AND NOT r.suspects_only
), known AS (
    SELECT d.name FROM redrive.destination d
    UNION SELECT w.name FROM waiting w UNION SELECT l.name FROM leased l UNION SELECT k.name FROM parked k
), whole AS MATERIALIZED (
    SELECT greatest((SELECT sum(w.pending) FROM waiting w), (SELECT sum(l.leased) FROM leased l),
                    (SELECT sum(k.dead + k.held + k.unrecorded) FROM parked k)) >= %(most)s AS capped
)
SELECT n.name AS destination, coalesce(w.pending, 0) AS pending, coalesce(w.due, 0) AS due,
       coalesce(w.retrying, 0) AS retrying, coalesce(w.suspects, 0) AS suspects, coalesce(l.leased, 0) AS leased,
       coalesce(k.dead, 0) AS dead, coalesce(k.held, 0) AS held, coalesce(k.unrecorded, 0) AS unrecorded,
       CASE WHEN o.due_at <= %(now)s THEN extract(epoch FROM %(now)s - o.due_at)::float8 END AS oldest_due_seconds,
       p.paused, CASE WHEN p.paused THEN d.pause_reason END AS pause_reason,
       CASE WHEN p.paused THEN d.paused_until END AS paused_until,
       coalesce(redrive.breaker_state(d.breaker, d.breaker_until, %(now)s), 'closed') AS breaker,
       d.breaker_until, d.breaker_code, h.name IS NOT NULL AS handled, a.capped
  FROM known n
 CROSS JOIN whole a
  LEFT JOIN waiting w ON w.name = n.name
  LEFT JOIN leased l ON l.name = n.name
  LEFT JOIN parked k ON k.name = n.name
  LEFT JOIN handled h ON h.name = n.name
  LEFT JOIN redrive.destination d ON d.name = n.name
 CROSS JOIN LATERAL (SELECT redrive.is_paused(n.name, %(now)s) AS paused) p
 CROSS JOIN LATERAL (SELECT least(w.oldest_due_at, min(u.due_at)) AS due_at
                       FROM (VALUES (0::smallint), (1::smallint), (2::smallint)) AS l (level)
                      CROSS JOIN LATERAL (SELECT x.due_at FROM redrive.pending x
                                           WHERE a.capped AND x.destination = n.name AND x.level = l.level AND x.lane IS NULL
                                             AND NOT x.suspect
                                           ORDER BY x.due_at LIMIT 1) u) o
 ORDER BY n.name
 LIMIT %(limit)s
