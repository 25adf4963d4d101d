-- Messages by id, with where each is now; in the order of the ids. A message is in one place at any snapshot, so the
-- first place that has it is the answer. 'lost' would mean that it is nowhere, and is never seen. An open message whose row is gone is
-- shown with what its place knows of it; its id says when it was made.
-- Relies on: the primary keys of message, pending, lease, parked, relay; attempt_message.
SELECT asked.id, coalesce(m.tenant, s.tenant) AS tenant, coalesce(s.destination, m.destination) AS destination,
       coalesce(m.kind, '') AS kind, m.key,
       coalesce(s.state, 'lost') AS state, s.detail, coalesce(s.stage, 'first') AS stage, coalesce(s.version, 1) AS version,
       coalesce(m.level, s.level) AS level, coalesce(s.attempt, 0) AS attempt, coalesce(s.spent, 0) AS spent, s.due_at,
       coalesce(m.created_at, to_timestamp(('x' || left(translate(asked.id::text, '-', ''), 12))::bit(48)::bigint / 1000.0))
           AS created_at,
       coalesce(m.expires_at, s.expires_at) AS expires_at, coalesce(m.content_type, '') AS content_type
  FROM unnest(%(ids)s::uuid[]) WITH ORDINALITY AS asked(id, position)
  LEFT JOIN LATERAL (SELECT x.id, x.tenant, x.destination, x.kind, x.key, x.level, x.created_at, x.expires_at, x.content_type
                       FROM redrive.message x WHERE x.id = asked.id OFFSET 0) m ON true
  LEFT JOIN LATERAL (
        SELECT 'pending' AS state, p.destination, p.stage, p.version, p.attempt, p.spent, p.due_at,
               CASE WHEN p.cancel_requested THEN 'cancel requested' WHEN p.kept_answer IS NOT NULL THEN 'to be recorded'
                    WHEN p.suspect THEN 'suspect' WHEN p.in_doubt_since IS NOT NULL THEN 'in doubt'
                    WHEN p.first_failed_at IS NOT NULL THEN 'retrying' END AS detail,
               p.tenant, p.level, p.expires_at
          FROM redrive.pending p WHERE p.id = asked.id
        UNION ALL
        SELECT 'leased', l.destination, l.stage, l.version, l.attempt, l.spent, NULL,
               CASE WHEN l.cancel_requested THEN 'cancel requested' ELSE r.name END, l.tenant, l.level, l.expires_at
          FROM redrive.lease l LEFT JOIN redrive.relay r ON r.worker = l.worker WHERE l.id = asked.id
        UNION ALL
        SELECT 'parked', k.destination, k.stage, k.version, k.attempt, k.spent, NULL, k.reason, k.tenant, k.level,
               k.expires_at
          FROM redrive.parked k WHERE k.id = asked.id
        UNION ALL
        SELECT a.closed, a.destination, a.stage, a.version, a.attempt, a.spent, NULL, NULL, NULL, NULL, NULL
          FROM redrive.attempt a WHERE a.message_id = m.id AND a.closed IS NOT NULL
        LIMIT 1) s ON true
 WHERE m.id IS NOT NULL OR s.tenant IS NOT NULL
 ORDER BY asked.position
