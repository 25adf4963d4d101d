-- One parked record; no row where the message is not parked.
-- Relies on: the primary keys of parked and message.
SELECT k.id, k.reason, k.tenant, k.destination, coalesce(m.kind, '') AS kind, m.key, k.error_class, k.stage, k.attempt, k.spent, k.crashes,
       k.exhausted, k.in_doubt_since, k.first_failed_at, k.last_failed_at, k.parked_at, k.last_text AS text,
       k.last_stack AS stack, k.context, k.kept_answer, k.version, k.workflow, k.cause, k.ticket, k.evidence, k.owner,
       k.note, k.edited, k.escalated, encode(k.failure_group, 'hex') AS failure_group, k.row_version
  FROM redrive.parked k
  LEFT JOIN redrive.message m ON m.id = k.id  -- its row may be gone
 WHERE k.id = %(id)s
