-- The messages of an instruction, in the order of their numbers, and how each stands. amount, currency, destination: of its newest
-- version, which an edit may have changed. versions: the terms of each, by whom they were edited, and how many attempts had them.
SELECT i.outbox_id, i.idempotency_key, i.sequence_id, i.created_at, coalesce(redrive.state_of(i.outbox_id), 'closed') AS state,
       k.reason AS park_reason, k.error_class, p.due_at, a.attempt AS attempts, a.reference, v.version, v.amount, v.currency,
       v.destination, v.versions
  FROM redrive_payments.intent i
  LEFT JOIN redrive.parked k ON k.id = i.outbox_id
  LEFT JOIN redrive.pending p ON p.id = i.outbox_id
  LEFT JOIN LATERAL (SELECT a.attempt, a.reference FROM redrive.attempt a WHERE a.message_id = i.outbox_id
                      ORDER BY a.attempt DESC, a.completed_at DESC LIMIT 1) a ON true
 CROSS JOIN LATERAL (
    SELECT max(t.version) AS version, (array_agg(t.amount::text ORDER BY t.version DESC))[1] AS amount,
           (array_agg(t.currency ORDER BY t.version DESC))[1] AS currency,
           (array_agg(t.destination_shown ORDER BY t.version DESC))[1] AS destination,
           json_agg(json_build_object(
               'version', t.version, 'amount', t.amount::text, 'currency', t.currency, 'destination', t.destination_shown,
               'edited_by', (SELECT e.edited_by FROM redrive_payments.edited_terms e
                              WHERE e.outbox_id = t.outbox_id AND e.version = t.version),
               'attempts', (SELECT count(*) FROM redrive.attempt x
                             WHERE x.message_id = t.outbox_id AND x.version = t.version
                               AND x.verb IN ('settle', 'complete', 'reap'))) ORDER BY t.version) AS versions
      FROM redrive_payments.terms t WHERE t.outbox_id = i.outbox_id) v
 WHERE i.tenant = %(tenant)s AND i.instruction_id = %(instruction_id)s
 ORDER BY i.sequence_id
