-- Events, newest first, for the console; `search` is an event type or a tenant. Looks at no more than 100,000 messages.
-- Relies on: message's primary key, scanned backwards; state_of, a few probes per row shown.
SELECT i.id, i.event_type, i.tenant_id, i.outbox, i.created_at, i.idempotency_key,
       coalesce((SELECT k.reason FROM redrive.parked k WHERE k.id = i.id), redrive.state_of(i.id)) AS state,
       coalesce((SELECT p.spent FROM redrive.pending p WHERE p.id = i.id), (SELECT k.spent FROM redrive.parked k WHERE k.id = i.id),
                0) AS retry_count
  FROM (SELECT w.id, w.kind AS event_type, w.tenant AS tenant_id, w.destination AS outbox, w.created_at, w.key AS idempotency_key
          FROM (SELECT x.* FROM redrive.message x
                 WHERE %(before)s::uuid IS NULL OR x.id < %(before)s::uuid
                 ORDER BY x.id DESC
                 LIMIT 100000) w
         WHERE starts_with(w.destination, 'tenant.')
           AND (%(search)s::text IS NULL OR w.kind = %(search)s OR w.tenant = %(search)s)
         ORDER BY w.id DESC
         LIMIT %(limit)s) i
 ORDER BY i.id DESC
