-- A page of delivered events, newest first, of the newest 100,000 attempts. total: of these, counted to 10,001.
-- Relies on: attempt_message, scanned backwards; a probe of message a row.
WITH recent AS MATERIALIZED (
    SELECT a.message_id, a.tenant, a.destination, a.closed FROM redrive.attempt a ORDER BY a.message_id DESC LIMIT 100000
), wanted AS MATERIALIZED (
    SELECT r.message_id AS id FROM recent r
     WHERE r.closed = 'delivered' AND starts_with(r.destination, 'tenant.')
       AND (%(tenant)s::text IS NULL OR r.tenant = %(tenant)s)
       AND (%(event_type)s::text IS NULL
            OR (SELECT m.kind FROM redrive.message m WHERE m.id = r.message_id) = %(event_type)s)
     ORDER BY r.message_id DESC
     LIMIT 10001
)
SELECT o.id, o.tenant_id, o.event_type, o.created_at, o.retry_count, o.processed_at, o.error, o.dead_letter, o.state,
       o.next_attempt_at, t.total
  FROM (SELECT count(*) AS total FROM wanted) t
  LEFT JOIN LATERAL (SELECT x.* FROM (SELECT w.id FROM wanted w ORDER BY w.id DESC LIMIT %(limit)s OFFSET %(offset)s) p
                       JOIN redrive_tenant.outbox_messages x ON x.id = p.id AND x.is_processed) o ON true
 ORDER BY o.id DESC
