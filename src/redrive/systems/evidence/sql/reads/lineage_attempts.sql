-- What the engine did with the messages to the Case API of an artifact, oldest first: sends, lookups, acts.
SELECT h.message_id, t.number, h.attempt, h.verb, h.answer, h.code, h.reference, h.in_doubt, h.actor, h.claimed_at, h.completed_at
  FROM redrive_evidence.artifact_attempt t
  JOIN redrive.history h ON h.message_id = t.message_id
 WHERE t.tenant = %(tenant)s AND t.artifact_id = %(artifact_id)s
 ORDER BY t.number, h.claimed_at NULLS LAST, h.completed_at NULLS LAST
