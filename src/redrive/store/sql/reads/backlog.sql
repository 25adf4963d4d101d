-- What waits, is in hand and is parked, by destination; also destinations that are known and have nothing.
-- One pass over the three small tables: the work grows with what is open, not with the history.
-- handled: a relay that was seen within `live_seconds` has it (G-29).
WITH waiting AS (
    SELECT p.destination AS name, count(*) AS pending, count(*) FILTER (WHERE p.due_at <= %(now)s) AS due,
           count(*) FILTER (WHERE p.first_failed_at IS NOT NULL AND NOT p.suspect) AS retrying,
           count(*) FILTER (WHERE p.suspect) AS suspects,
           min(p.due_at) AS oldest_due_at
      FROM redrive.pending p GROUP BY p.destination
), leased AS (
    SELECT l.destination AS name, count(*) AS leased FROM redrive.lease l GROUP BY l.destination
), parked AS (
    SELECT k.destination AS name, count(*) FILTER (WHERE k.reason = 'dead') AS dead,
           count(*) FILTER (WHERE k.reason = 'held') AS held, count(*) FILTER (WHERE k.reason = 'unrecorded') AS unrecorded
      FROM redrive.parked k GROUP BY k.destination
), handled AS (
    SELECT DISTINCT unnest(r.destinations) AS name FROM redrive.relay r
     WHERE r.seen_at > %(now)s - make_interval(secs => %(live_seconds)s) AND NOT r.stopping AND NOT r.suspects_only
), known AS (
    SELECT d.name FROM redrive.destination d
    UNION SELECT w.name FROM waiting w UNION SELECT l.name FROM leased l UNION SELECT k.name FROM parked k
)
SELECT n.name AS destination, coalesce(w.pending, 0) AS pending, coalesce(w.due, 0) AS due,
       coalesce(w.retrying, 0) AS retrying, coalesce(w.suspects, 0) AS suspects, coalesce(l.leased, 0) AS leased,
       coalesce(k.dead, 0) AS dead, coalesce(k.held, 0) AS held, coalesce(k.unrecorded, 0) AS unrecorded,
       CASE WHEN w.oldest_due_at <= %(now)s THEN extract(epoch FROM %(now)s - w.oldest_due_at)::float8 END
           AS oldest_due_seconds,
       p.paused, CASE WHEN p.paused THEN d.pause_reason END AS pause_reason,
       CASE WHEN p.paused THEN d.paused_until END AS paused_until,
       coalesce(redrive.breaker_state(d.breaker, d.breaker_until, %(now)s), 'closed') AS breaker,
       d.breaker_until, d.breaker_code, h.name IS NOT NULL AS handled
  FROM known n
  LEFT JOIN waiting w ON w.name = n.name
  LEFT JOIN leased l ON l.name = n.name
  LEFT JOIN parked k ON k.name = n.name
  LEFT JOIN handled h ON h.name = n.name
  LEFT JOIN redrive.destination d ON d.name = n.name
 CROSS JOIN LATERAL (SELECT redrive.is_paused(n.name, %(now)s) AS paused) p
 ORDER BY n.name
 LIMIT %(limit)s
