-- Participants and the number of their next payment, behind a name.
SELECT p.participant_id, p.name, s.next_sequence_id, p.created_at
  FROM redrive_payments.participant p
  JOIN redrive_payments.participant_outbox_sequences s USING (tenant, participant_id)
 WHERE p.tenant = %(tenant)s AND p.participant_id > %(after)s
 ORDER BY p.participant_id
 LIMIT %(limit)s
