-- What the comparison of the books could not explain, latest first; what was resolved too. `search` is a rail.
-- Reads all findings, of which there are few: each is something that a person looks into.
SELECT f.sentence, f.rail_type, f.kind, f.subject,
       CASE WHEN f.resolved_at IS NOT NULL THEN 'resolved' WHEN f.acknowledged_at IS NOT NULL THEN 'acknowledged' ELSE 'open' END AS state,
       f.first_seen_at, f.last_seen_at
  FROM redrive_payments.finding f
 WHERE (%(before)s::timestamptz IS NULL OR f.last_seen_at < %(before)s::timestamptz)
   AND (%(search)s::text IS NULL OR f.rail_type = %(search)s)
 ORDER BY f.last_seen_at DESC, f.rail_type, f.kind, f.subject
 LIMIT %(limit)s
