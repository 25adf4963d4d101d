-- The latest attempts of a message and acts on it, oldest first.
-- Relies on: attempt_message.
SELECT t.attempt, t.verb, t.stage, t.version, t.settlement, t.answer, t.code, t.text, t.reference, t.result, t.closed,
       t.worker, t.actor, t.reason, t.claimed_at, t.completed_at, t.latency_ms, t.spent, t.due_at
  FROM (SELECT a.* FROM redrive.attempt a
         WHERE a.message_id = %(id)s
         ORDER BY a.completed_at DESC, a.attempt DESC
         LIMIT %(limit)s) t
 ORDER BY t.completed_at, t.attempt
