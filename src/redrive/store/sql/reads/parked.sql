-- The worklist of one reason, latest parked first, over all destinations or one.
-- One step of the index for each destination that has any, then its latest rows in the order of the index: the work does
-- not grow with what is parked, unless a tenant, kind, error class or group is asked for that few rows have.
-- Relies on: parked_listed; message's primary key, one probe per row shown.
WITH RECURSIVE place AS (
    SELECT coalesce(%(destination)s, (SELECT k.destination FROM redrive.parked k WHERE k.reason = %(reason)s
                                       ORDER BY k.destination LIMIT 1)) AS name
    UNION ALL
    SELECT (SELECT k.destination FROM redrive.parked k WHERE k.reason = %(reason)s AND k.destination > place.name
             ORDER BY k.destination LIMIT 1)
      FROM place WHERE place.name IS NOT NULL AND %(destination)s::text IS NULL
), listed AS (
    SELECT k.*
      FROM place
     CROSS JOIN LATERAL (
        SELECT x.* FROM redrive.parked x
         WHERE x.reason = %(reason)s AND x.destination = place.name
           AND (x.parked_at, x.id) < (%(before_at)s, %(before_id)s)
           AND (%(tenant)s::text IS NULL OR x.tenant = %(tenant)s)
           AND (%(error_class)s::text IS NULL OR x.error_class = %(error_class)s)
           AND (%(failure_group)s::bytea IS NULL OR x.failure_group = %(failure_group)s)
           AND (%(kind)s::text IS NULL
                OR EXISTS (SELECT 1 FROM redrive.message m WHERE m.id = x.id AND m.kind = %(kind)s))
         ORDER BY x.parked_at DESC, x.id DESC
         LIMIT %(limit)s) k
     ORDER BY k.parked_at DESC, k.id DESC
     LIMIT %(limit)s
)
SELECT k.id, k.reason, k.tenant, k.destination, coalesce(m.kind, '') AS kind, m.key, k.error_class, k.stage, k.attempt, k.spent, k.crashes,
       k.exhausted, k.in_doubt_since, k.first_failed_at, k.last_failed_at, k.parked_at, k.last_text AS text,
       k.last_stack AS stack, k.context, k.kept_answer, k.version, k.workflow, k.cause, k.ticket, k.evidence, k.owner,
       k.note, k.edited, k.escalated, encode(k.failure_group, 'hex') AS failure_group, k.row_version
  FROM listed k
  LEFT JOIN LATERAL (SELECT x.kind, x.key FROM redrive.message x WHERE x.id = k.id OFFSET 0) m ON true  -- its row may be gone
 ORDER BY k.parked_at DESC, k.id DESC
