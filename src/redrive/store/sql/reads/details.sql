-- What `messages show` says beyond the list: order, doubt, crashes and who has it in hand.
-- Relies on: the primary keys of message, pending, lease, parked, relay.
SELECT m.order_by, coalesce(m.sequence, s.sequence) AS sequence, s.in_doubt_since, coalesce(s.crashes, 0) AS crashes, coalesce(s.lookups, 0) AS lookups,
       coalesce(s.cancel_requested, false) AS cancel_requested, s.policy_version, s.worker, r.name AS relay, s.claimed_at,
       s.until AS leased_until,
       coalesce(s.token, (SELECT a.token FROM redrive.attempt a WHERE a.message_id = asked.id ORDER BY a.completed_at DESC LIMIT 1))
           AS token
  FROM (SELECT %(id)s::uuid AS id) asked
  LEFT JOIN redrive.message m ON m.id = asked.id  -- its row may be gone
  LEFT JOIN LATERAL (
        SELECT p.in_doubt_since, p.crashes, p.lookups, p.cancel_requested, p.policy_version, NULL::uuid AS worker,
               NULL::timestamptz AS claimed_at, NULL::timestamptz AS until, p.token,
               p.sequence
          FROM redrive.pending p WHERE p.id = asked.id
        UNION ALL
        SELECT l.in_doubt_since, l.crashes, l.lookups, l.cancel_requested, l.policy_version, l.worker, l.claimed_at, l.until,
               l.token, l.sequence
          FROM redrive.lease l WHERE l.id = asked.id
        UNION ALL
        SELECT k.in_doubt_since, k.crashes, k.lookups, false, k.policy_version, NULL, NULL, NULL, k.token, k.sequence
          FROM redrive.parked k WHERE k.id = asked.id) s ON true
  LEFT JOIN redrive.relay r ON r.worker = s.worker
