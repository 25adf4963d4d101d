-- redrive: after terms
-- What an auditor reads, by the names of the document that asked for it (P-08). Security-invoker views: a reader sees what its role
-- and tenant may see of the engine's tables and of these. The account number is in none of them.

-- The number that each participant's next payment takes.
CREATE OR REPLACE VIEW redrive_payments.participant_outbox_sequences WITH (security_invoker = true) AS
SELECT p.tenant, p.participant_id, coalesce(s.last_sequence, 0) + 1 AS next_sequence_id
  FROM redrive_payments.participant p
  LEFT JOIN redrive.stream s ON s.tenant = p.tenant AND s.order_by = 'payments/' || p.participant_id;

-- An intent with what is to be paid, as it was submitted.
CREATE OR REPLACE VIEW redrive_payments.intents WITH (security_invoker = true) AS
SELECT i.outbox_id, i.tenant, i.instruction_id, i.participant_id, i.sequence_id, i.idempotency_key, i.rail_type, i.created_at,
       jsonb_build_object('amount', n.amount::text, 'currency', n.currency, 'destination', n.destination_shown) AS payload
  FROM redrive_payments.intent i
  JOIN redrive_payments.instruction n USING (tenant, instruction_id);

-- Payments that wait for their turn or for a retry. payload: what the next attempt sends.
CREATE OR REPLACE VIEW redrive_payments.payment_outbox_pending WITH (security_invoker = true) AS
SELECT i.outbox_id, i.tenant, i.instruction_id, i.participant_id, i.sequence_id, i.idempotency_key, i.rail_type,
       redrive_payments.terms_json(t.amount, t.currency, t.destination_shown) AS payload,
       p.attempt AS attempt_count, p.due_at AS next_attempt_at, i.created_at
  FROM redrive.pending p
  JOIN redrive_payments.intent i ON i.outbox_id = p.id
  -- A probe, not a join: that would read the terms of all payments.
  LEFT JOIN LATERAL (SELECT x.amount, x.currency, x.destination_shown FROM redrive_payments.terms x
                      WHERE x.outbox_id = p.id AND x.version = p.version OFFSET 0) t ON true;

-- state_of_attempt: the document's word for a row of the archive. HELD is ours: the payment may have been made, so that FAILED
-- would be a lie. An act of a person is its own word.
CREATE OR REPLACE FUNCTION redrive_payments.state_of_attempt(p_verb text, p_settlement text, p_closed text, p_in_doubt boolean)
RETURNS text LANGUAGE sql IMMUTABLE AS $body$
    SELECT CASE WHEN p_verb = 'claim' THEN 'DISPATCHING'
                WHEN p_verb = 'reap' THEN 'ZOMBIE_REQUEUE'
                WHEN p_verb NOT IN ('settle', 'complete') THEN upper(p_verb)
                WHEN p_closed = 'delivered' THEN 'DISPATCHED'
                WHEN p_closed IS NOT NULL THEN upper(p_closed)
                WHEN p_settlement = 'park' THEN CASE WHEN p_in_doubt THEN 'HELD' ELSE 'FAILED' END
                ELSE 'RETRYABLE' END
$body$;

-- Every attempt and act, and what is being dispatched right now. attempt_id is made of what the row is, so that it is the same
-- whenever it is asked for; an attempt that is DISPATCHING keeps it when it ends.
-- payload: the terms of the version that this attempt sent, which an edit may have changed.
-- rail_code: what the rail said; NULL where it said nothing, and error_code tells why.
CREATE OR REPLACE VIEW redrive_payments.payment_outbox_attempts WITH (security_invoker = true) AS
SELECT encode(substring(sha256(convert_to(concat_ws(':', a.message_id, a.attempt,
                  CASE WHEN a.verb NOT IN ('claim', 'settle', 'complete', 'reap', 'hand_back')
                       THEN a.verb || ':' || extract(epoch FROM a.completed_at) END), 'UTF8')) FOR 16), 'hex')::uuid AS attempt_id,
       i.outbox_id, i.tenant, i.instruction_id, i.participant_id, i.sequence_id, i.idempotency_key, i.rail_type,
       redrive_payments.terms_json(t.amount, t.currency, t.destination_shown) AS payload,
       a.attempt AS attempt_no, redrive_payments.state_of_attempt(a.verb, a.settlement, a.closed, a.in_doubt) AS state,
       coalesce(a.claimed_at, a.completed_at) AS claimed_at, a.completed_at, a.reference AS rail_reference,
       coalesce(a.result ->> 'rail_code', substring(a.text FROM '^Rail \d{3} ([A-Z0-9_]+)')) AS rail_code,
       a.code AS error_code, a.text AS error_message, a.latency_ms, a.worker, a.actor, a.reason,
       coalesce(a.completed_at, a.claimed_at) AS created_at, a.version
  FROM (SELECT message_id, attempt, verb, settlement, answer, closed, in_doubt, claimed_at, completed_at, reference, result,
               code, text, latency_ms, worker, actor, reason, version
          FROM redrive.attempt
        UNION ALL
        SELECT id, attempt, 'claim', NULL, NULL, NULL, false, claimed_at, NULL, NULL, NULL, NULL, NULL, NULL, worker, NULL, NULL,
               version
          FROM redrive.lease) a
  JOIN redrive_payments.intent i ON i.outbox_id = a.message_id
  LEFT JOIN LATERAL (SELECT x.amount, x.currency, x.destination_shown FROM redrive_payments.terms x
                      WHERE x.outbox_id = a.message_id AND x.version = a.version OFFSET 0) t ON true;
