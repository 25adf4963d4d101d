-- Workers that registered, the latest seen first; live: seen within `live_seconds`.
SELECT w.worker, w.name, w.host, w.pid, w.version, w.started_at,
       extract(epoch FROM %(now)s - w.seen_at)::float8 AS seen_seconds_ago,
       w.seen_at > %(now)s - make_interval(secs => %(live_seconds)s) AS live, w.consumers
  FROM redrive.worker w
 ORDER BY w.seen_at DESC, w.worker
 LIMIT %(limit)s
