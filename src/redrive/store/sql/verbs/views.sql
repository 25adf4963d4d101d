-- What people read. Security-invoker views: a reader sees through them only what its role and tenant may see.

-- Every message with its state; 'lost' would mean that a message is nowhere, and is never seen.
CREATE OR REPLACE VIEW redrive.messages WITH (security_invoker = true) AS
SELECT m.id, m.tenant, m.destination, m.kind, m.key, m.order_by, m.sequence, m.level, m.created_at, m.expires_at,
       m.content_type, coalesce(redrive.state_of(m.id), 'lost') AS state
  FROM redrive.message m;

-- Every attempt and act, and the claims under way as DISPATCHING (G-06).
CREATE OR REPLACE VIEW redrive.history WITH (security_invoker = true) AS
SELECT a.message_id, a.attempt, a.verb, a.tenant, a.destination, a.stage, a.version, a.settlement, a.answer, a.closed, a.code,
       a.text, a.reference, a.worker, a.claimed_at, a.completed_at, a.due_at, a.latency_ms, a.spent, a.in_doubt, a.actor,
       a.reason, a.policy_version
  FROM redrive.attempt a
UNION ALL
SELECT l.id, l.attempt, 'claim', l.tenant, l.destination, l.stage, l.version, NULL, NULL, NULL, 'DISPATCHING', NULL, NULL,
       l.worker, l.claimed_at, NULL, NULL, NULL, l.spent, l.in_doubt_since IS NOT NULL, NULL, NULL, l.policy_version
  FROM redrive.lease l;

-- One row: where all messages are. enqueued = pending + leased + parked + closed, at any snapshot (G-28).
CREATE OR REPLACE VIEW redrive.conservation WITH (security_invoker = true) AS
SELECT (SELECT count(*) FROM redrive.message) AS enqueued,
       (SELECT count(*) FROM redrive.pending) AS pending,
       (SELECT count(*) FROM redrive.lease) AS leased,
       (SELECT count(*) FROM redrive.parked) AS parked,
       (SELECT count(*) FROM redrive.attempt WHERE closed IS NOT NULL) AS closed;
