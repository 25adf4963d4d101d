-- The items of a replay in their order, behind `after`; `outcome` = NULL for all, 'waiting' for those that have none yet.
-- Relies on: replay_item's primary key.
SELECT i.position, i.message_id, coalesce(i.outcome, 'waiting') AS outcome, i.detail, i.error_class, i.requeued_at,
       i.finished_at, i.verified_at, i.verified_by
  FROM redrive.replay_item i
 WHERE i.replay_id = %(replay)s AND i.position > %(after)s
   AND (%(outcome)s::text IS NULL OR coalesce(i.outcome, 'waiting') = %(outcome)s)
 ORDER BY i.position
 LIMIT %(limit)s
