-- Failure groups, latest failure first: what was counted, and what the tally holds beyond that. waiting: parked messages
-- of the group that the reader may see, counted up to `most`.
-- prefix: of the fingerprint in hexadecimal. statuses: NULL for all.
-- Reads all groups, one for each cause there ever was, and the tally; relies on parked_group.
WITH uncounted AS (
    SELECT t.fingerprint, count(*) AS seen, min(t.at) AS first_at, max(t.at) AS last_at, min(t.destination) AS destination,
           min(t.kind) AS kind, min(t.error_class) AS error_class,
           (array_agg(t.sample_text ORDER BY t.at DESC))[1] AS sample_text
      FROM redrive.failure_tally t GROUP BY t.fingerprint
), known AS (
    SELECT coalesce(g.fingerprint, u.fingerprint) AS fingerprint, coalesce(g.destination, u.destination) AS destination,
           coalesce(g.kind, u.kind) AS kind, coalesce(g.error_class, u.error_class) AS error_class,
           coalesce(u.sample_text, g.sample_text) AS sample_text, coalesce(g.seen, 0) + coalesce(u.seen, 0) AS seen,
           least(g.first_seen_at, u.first_at) AS first_seen_at, greatest(g.last_seen_at, u.last_at) AS last_seen_at,
           coalesce(g.status, 'open') AS said, g.owner, g.note, g.snoozed_until, g.resolved_at
      FROM redrive.failure_group g
      FULL JOIN uncounted u ON u.fingerprint = g.fingerprint
), judged AS (
    SELECT k.*, redrive.group_status(k.said, k.resolved_at, k.snoozed_until, k.last_seen_at, %(now)s) AS status FROM known k
), listed AS (
    SELECT j.* FROM judged j
     WHERE (j.last_seen_at, j.fingerprint) < (%(before_at)s, %(before)s)
       AND (%(statuses)s::text[] IS NULL OR j.status = ANY (%(statuses)s))
       AND (%(destination)s::text IS NULL OR j.destination = %(destination)s)
       AND (%(prefix)s::text IS NULL OR starts_with(encode(j.fingerprint, 'hex'), %(prefix)s))
     ORDER BY j.last_seen_at DESC, j.fingerprint DESC
     LIMIT %(limit)s
)
SELECT l.fingerprint, l.destination, l.kind, l.error_class, l.sample_text, l.seen, l.first_seen_at, l.last_seen_at, l.status,
       l.owner, l.note, l.snoozed_until, l.resolved_at, w.waiting
  FROM listed l
 CROSS JOIN LATERAL (
        SELECT count(*) AS waiting
          FROM (SELECT 1 FROM redrive.parked p WHERE p.failure_group = l.fingerprint LIMIT %(most)s) p) w
 ORDER BY l.last_seen_at DESC, l.fingerprint DESC
