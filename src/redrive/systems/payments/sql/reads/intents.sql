-- The messages of an instruction, in the order of their numbers, and how each stands.
SELECT i.outbox_id, i.idempotency_key, i.sequence_id, i.created_at, coalesce(redrive.state_of(i.outbox_id), 'closed') AS state,
       k.reason AS park_reason, k.error_class, p.due_at, a.attempt AS attempts, a.reference
  FROM redrive_payments.intent i
  LEFT JOIN redrive.parked k ON k.id = i.outbox_id
  LEFT JOIN redrive.pending p ON p.id = i.outbox_id
  LEFT JOIN LATERAL (SELECT a.attempt, a.reference FROM redrive.attempt a WHERE a.message_id = i.outbox_id
                      ORDER BY a.attempt DESC, a.completed_at DESC LIMIT 1) a ON true
 WHERE i.tenant = %(tenant)s AND i.instruction_id = %(instruction_id)s
 ORDER BY i.sequence_id
