-- The chain of operators' acts in its order, each link with the hash that its row should have.
-- Relies on: operator_action's primary key.
SELECT o.id, o.previous_hash, o.hash,
       redrive.action_hash(o.id, o.at, o.actor, o.act, o.subject, o.reason, o.before, o.after, o.previous_hash) AS computed
  FROM redrive.operator_action o
 WHERE o.id > %(after)s
 ORDER BY o.id
 LIMIT %(limit)s
