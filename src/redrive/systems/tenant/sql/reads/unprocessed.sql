-- A page of events that are not processed yet, newest first; failed: only those that failed at least once, and dead ones,
-- also where no attempt was spent: a payload that kills its process, a subscriber that its breaker knows to be down.
-- total: all of them, counted to 10,001. Relies on: the tables of open work are small; a probe of message a row.
WITH wanted AS MATERIALIZED (
    SELECT s.id FROM redrive_tenant.states s
     WHERE NOT s.is_processed AND (%(tenant)s::text IS NULL OR s.tenant = %(tenant)s)
       AND (NOT %(failed)s OR s.has_failed)
       AND (%(event_type)s::text IS NULL
            OR (SELECT m.kind FROM redrive.message m WHERE m.id = s.id) = %(event_type)s)
     ORDER BY s.id DESC
     LIMIT 10001
)
SELECT o.id, o.tenant_id, o.event_type, o.created_at, o.retry_count, o.processed_at, o.error, o.dead_letter, o.state,
       o.next_attempt_at, t.total
  FROM (SELECT count(*) AS total FROM wanted) t
  LEFT JOIN LATERAL (SELECT x.* FROM (SELECT w.id FROM wanted w ORDER BY w.id DESC LIMIT %(limit)s OFFSET %(offset)s) p
                       JOIN redrive_tenant.outbox_messages x ON x.id = p.id AND NOT x.is_processed) o ON true
 ORDER BY o.id DESC
