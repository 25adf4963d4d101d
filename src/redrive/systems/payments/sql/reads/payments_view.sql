-- Payments, newest first, with where each is now; `search` is an instruction or a participant. Looks at no more than 100,000.
-- Amount, currency and destination are those of the newest version, which an edit may have changed.
-- Relies on: intent's primary key, scanned backwards; a probe of instruction, edited_terms and of the engine's tables per row shown.
SELECT i.outbox_id, i.instruction_id, i.participant_id, i.sequence_id, i.rail_type, n.amount, n.currency, n.destination,
       coalesce((SELECT k.reason FROM redrive.parked k WHERE k.id = i.outbox_id), redrive.state_of(i.outbox_id)) AS state,
       i.created_at
  FROM (SELECT w.*
          FROM (SELECT x.* FROM redrive_payments.intent x
                 WHERE %(before)s::uuid IS NULL OR x.outbox_id < %(before)s::uuid
                 ORDER BY x.outbox_id DESC
                 LIMIT 100000) w
         WHERE %(search)s::text IS NULL OR w.instruction_id = %(search)s OR w.participant_id = %(search)s
         ORDER BY w.outbox_id DESC
         LIMIT %(limit)s) i
 CROSS JOIN LATERAL (SELECT t.amount::text AS amount, t.currency, t.destination_shown AS destination
                       FROM (SELECT e.version, e.amount, e.currency, e.destination_shown FROM redrive_payments.edited_terms e
                              WHERE e.outbox_id = i.outbox_id
                             UNION ALL
                             SELECT 1, x.amount, x.currency, x.destination_shown FROM redrive_payments.instruction x
                              WHERE x.tenant = i.tenant AND x.instruction_id = i.instruction_id) t
                      ORDER BY t.version DESC LIMIT 1) n
 ORDER BY i.outbox_id DESC
