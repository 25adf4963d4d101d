-- Consumers that a worker ran within a week, by name; workers: how many live ones run it, away: how many of these say that its source
-- does not answer (G-29).
WITH run AS (
    SELECT x.name, x.is_connected, w.seen_at, w.seen_at > %(now)s - make_interval(secs => %(live_seconds)s) AS live
      FROM redrive.worker w CROSS JOIN LATERAL json_to_recordset(w.consumers) AS x(name text, is_connected boolean)
)
SELECT c.name, count(r.name) FILTER (WHERE r.live) AS workers,
       count(r.name) FILTER (WHERE r.live AND NOT r.is_connected) AS away,
       extract(epoch FROM %(now)s - greatest(c.seen_at, max(r.seen_at)))::float8 AS seen_seconds_ago
  FROM redrive.consumer c LEFT JOIN run r ON r.name = c.name
 GROUP BY c.name, c.seen_at
 ORDER BY c.name
 LIMIT %(limit)s
