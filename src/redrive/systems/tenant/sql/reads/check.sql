-- What a rollout needs (`redrive tenant check`): of the newest 100,000 messages those of an outbox without a UUID as key; outboxes
-- that a live relay delivers, and those with events that wait for one; what relays published. Relies on: message's primary key, scanned backwards.
WITH recent AS MATERIALIZED (
    SELECT m.id, m.destination, m.key FROM redrive.message m ORDER BY m.id DESC LIMIT 100000
), waiting AS (
    SELECT s.destination, count(*) AS unprocessed FROM redrive_tenant.states s
     WHERE NOT s.is_processed AND s.state IN ('pending', 'leased') GROUP BY s.destination
), alive AS (
    SELECT DISTINCT d.destination FROM redrive.relay r CROSS JOIN LATERAL unnest(r.destinations) AS d (destination)
     WHERE starts_with(d.destination, 'tenant.') AND r.seen_at > clock_timestamp() - interval '30 seconds'
)
SELECT (SELECT count(*) FROM recent r WHERE starts_with(r.destination, 'tenant.') AND redrive_tenant.key_of(r.key) IS NULL) AS without_key,
       (SELECT count(*) FROM recent r WHERE starts_with(r.destination, 'tenant.')) AS looked_at,
       (SELECT coalesce(json_agg(o.destination ORDER BY o.destination), '[]') FROM redrive_tenant.outbox o) AS published,
       (SELECT coalesce(json_agg(w.destination ORDER BY w.destination), '[]') FROM waiting w
         WHERE w.destination NOT IN (SELECT a.destination FROM alive a)) AS unhandled,
       (SELECT coalesce(json_agg(a.destination ORDER BY a.destination), '[]') FROM alive a) AS alive
