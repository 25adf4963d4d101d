-- Everything that happened to the payments of an instruction, in order: attempts and acts of the archive, answers that came too
-- late, and what is in hand right now; each with the terms of its version.
WITH mine AS MATERIALIZED (
    SELECT i.outbox_id, i.idempotency_key, i.sequence_id, i.created_at
      FROM redrive_payments.intent i
     WHERE i.tenant = %(tenant)s AND i.instruction_id = %(instruction_id)s
)
SELECT story.*, t.amount::text AS amount, t.currency, t.destination_shown AS destination FROM (
SELECT 'submitted' AS what, 'SUBMITTED' AS state, m.created_at AS at, m.outbox_id, m.sequence_id, m.idempotency_key,
       NULL::integer AS attempt_no, NULL::timestamptz AS claimed_at, NULL::uuid AS worker, NULL AS answer, NULL AS code, NULL AS text,
       NULL AS rail_code, NULL AS reference, NULL::integer AS latency_ms, false AS in_doubt, NULL::boolean AS by_lookup,
       NULL::timestamptz AS next_at, NULL AS actor, NULL AS reason, NULL::integer AS spent, 1 AS version
  FROM mine m
UNION ALL
SELECT CASE WHEN a.verb IN ('settle', 'complete', 'reap', 'hand_back') THEN 'attempt' ELSE 'act' END,
       redrive_payments.state_of_attempt(a.verb, a.settlement, a.closed, a.in_doubt), a.completed_at, m.outbox_id, m.sequence_id,
       m.idempotency_key, a.attempt, a.claimed_at, a.worker, a.answer, a.code, a.text,
       coalesce(a.result ->> 'rail_code', substring(a.text FROM '^(?:Rail|Lookup) \d{3} ([A-Z0-9_]+)')), a.reference,
       a.latency_ms, a.in_doubt, a.result ->> 'by' = 'lookup' OR a.text LIKE 'Lookup%%' OR a.code = 'ABSENT_TOO_EARLY',
       a.due_at, a.actor, a.reason, a.spent, a.version
  FROM mine m
 CROSS JOIN LATERAL (SELECT * FROM redrive.attempt x WHERE x.message_id = m.outbox_id) a
UNION ALL
SELECT 'late answer', 'LATE_ANSWER', l.at, m.outbox_id, m.sequence_id, m.idempotency_key, l.attempt, NULL, l.worker, l.answer,
       l.code, l.text, substring(l.text FROM '^Rail \d{3} ([A-Z0-9_]+)'), l.reference, NULL, l.answer = 'unknown', NULL, NULL, NULL,
       NULL, NULL, (SELECT a.version FROM redrive.attempt a WHERE a.message_id = l.message_id AND a.attempt = l.attempt
                     ORDER BY a.verb IN ('settle', 'complete', 'reap') DESC LIMIT 1)
  FROM mine m
 CROSS JOIN LATERAL (SELECT * FROM redrive.late_answer x WHERE x.message_id = m.outbox_id) l
UNION ALL
SELECT 'in hand', 'DISPATCHING', l.claimed_at, m.outbox_id, m.sequence_id, m.idempotency_key, l.attempt, l.claimed_at, l.worker,
       NULL, NULL, NULL, NULL, NULL, NULL, l.in_doubt_since IS NOT NULL, NULL, NULL, NULL, NULL, l.spent, l.version
  FROM mine m
 CROSS JOIN LATERAL (SELECT * FROM redrive.lease x WHERE x.id = m.outbox_id) l
) AS story
  LEFT JOIN LATERAL (SELECT x.amount, x.currency, x.destination_shown FROM redrive_payments.terms x
                      WHERE x.outbox_id = story.outbox_id AND x.version = story.version OFFSET 0) t ON true
-- What a new submission gives up comes before it, of one commit though they are.
 ORDER BY story.at, story.what = 'submitted', story.attempt_no
