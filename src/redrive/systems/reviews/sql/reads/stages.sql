-- The stages fetch and llm of a job, with how many attempts each took, how it stands, and why. The engine calls fetch `first`.
WITH job AS (
    SELECT j.message_id FROM redrive_reviews.job j
     WHERE j.tenant = %(tenant)s AND j.changelist_id = %(changelist_id)s AND j.review_version = %(review_version)s
), tried AS (
    SELECT split_part(h.destination, '.', 2) AS stage,
           count(*) FILTER (WHERE h.verb IN ('settle', 'complete', 'reap')) AS attempts,
           bool_or(h.settlement IS NOT DISTINCT FROM 'advance' OR h.closed IS NOT DISTINCT FROM 'delivered') AS done
      FROM redrive.history h WHERE h.message_id = (SELECT message_id FROM job) GROUP BY 1
)
SELECT s.stage, coalesce(t.attempts, 0) AS attempts,
       CASE WHEN k.id IS NOT NULL THEN k.reason
            WHEN t.done THEN 'done'
            WHEN p.id IS NOT NULL THEN 'pending'
            WHEN l.id IS NOT NULL THEN 'leased'
            ELSE 'waiting' END AS state,
       k.error_class, p.due_at, 'idempotent: the stage reads, and has no effect outside' AS on_replay
  FROM unnest(ARRAY['fetch', 'llm']) WITH ORDINALITY AS s(stage, place)
 CROSS JOIN job j
  LEFT JOIN tried t ON t.stage = s.stage
  LEFT JOIN redrive.parked k ON k.id = j.message_id AND split_part(k.destination, '.', 2) = s.stage
  LEFT JOIN redrive.pending p ON p.id = j.message_id AND split_part(p.destination, '.', 2) = s.stage
  LEFT JOIN redrive.lease l ON l.id = j.message_id AND split_part(l.destination, '.', 2) = s.stage
 ORDER BY s.place
