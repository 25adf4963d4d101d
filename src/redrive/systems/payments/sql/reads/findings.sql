-- Findings of a rail, or of all (NULL), the latest first. all: resolved ones too.
SELECT f.rail_type, f.kind, f.subject,
       CASE WHEN f.resolved_at IS NOT NULL THEN 'resolved' WHEN f.acknowledged_at IS NOT NULL THEN 'acknowledged' ELSE 'open' END AS state,
       f.sentence, f.evidence, f.first_seen_at, f.last_seen_at, f.resolved_at, f.acknowledged_at, f.acknowledged_by, f.acknowledged_reason,
       f.acknowledged_reference
  FROM redrive_payments.finding f
 WHERE (%(rail_type)s::text IS NULL OR f.rail_type = %(rail_type)s) AND (%(all)s OR f.resolved_at IS NULL)
 ORDER BY f.last_seen_at DESC, f.rail_type, f.kind, f.subject
 LIMIT %(limit)s
