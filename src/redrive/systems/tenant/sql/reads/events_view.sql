-- Events, newest first, for the console; `search` is an event type or a tenant. Looks at no more than 100,000 messages.
-- Relies on: message's primary key, scanned backwards; a probe of each table of open work and of attempt_message per row shown.
SELECT i.id, i.event_type, i.tenant_id, i.outbox, i.created_at, i.idempotency_key, s.state, s.retry_count
  FROM (SELECT w.id, w.kind AS event_type, w.tenant AS tenant_id, w.destination AS outbox, w.created_at, w.key AS idempotency_key
          FROM (SELECT x.id, x.kind, x.tenant, x.destination, x.created_at, x.key FROM redrive.message x
                 WHERE %(before)s::uuid IS NULL OR x.id < %(before)s::uuid
                 ORDER BY x.id DESC
                 LIMIT 100000) w
         WHERE starts_with(w.destination, 'tenant.')
           AND (%(search)s::text IS NULL OR w.kind = %(search)s OR w.tenant = %(search)s)
         ORDER BY w.id DESC
         LIMIT %(limit)s) i
  LEFT JOIN LATERAL (SELECT x.state, x.retry_count FROM redrive_tenant.states x WHERE x.id = i.id LIMIT 1) s ON true
 ORDER BY i.id DESC
