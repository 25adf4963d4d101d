-- What is to be paid, as it was submitted, and by whom.
SELECT n.tenant, n.instruction_id, n.participant_id, p.name AS participant, n.rail_type, n.amount::text AS amount, n.currency,
       n.destination_shown AS destination, n.created_at
  FROM redrive_payments.instruction n
  JOIN redrive_payments.participant p USING (tenant, participant_id)
 WHERE n.tenant = %(tenant)s AND n.instruction_id = %(instruction_id)s
