-- Replays that need a person: stopped by their failures, or moving money and not approved. Oldest first.
-- Relies on: replay_unfinished.
SELECT r.id, r.name, r.status, r.stop_reason
  FROM redrive.replay r
 WHERE r.finished_at IS NULL AND r.status IN ('stopped', 'waiting')
 ORDER BY r.id
 LIMIT %(limit)s
