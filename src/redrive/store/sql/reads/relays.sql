-- Relays that registered, the latest seen first; live: seen within `live_seconds`.
SELECT r.worker, r.name, r.host, r.pid, r.version, r.destinations, r.started_at,
       extract(epoch FROM %(now)s - r.seen_at)::float8 AS seen_seconds_ago,
       (SELECT count(*) FROM redrive.lease l WHERE l.worker = r.worker) AS leases,
       r.seen_at > %(now)s - make_interval(secs => %(live_seconds)s) AS live, r.suspects_only, r.listener
  FROM redrive.relay r
 ORDER BY r.seen_at DESC, r.worker
 LIMIT %(limit)s
