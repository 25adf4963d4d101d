-- The latest request about each of these messages, and its answer.
-- Relies on: request_message, one probe per message.
SELECT q.id, q.message_id, q.asked_at, q.asked_by, q.answered_at, q.answer
  FROM unnest(%(ids)s::uuid[]) AS u(id)
 CROSS JOIN LATERAL (SELECT * FROM redrive.request x WHERE x.message_id = u.id ORDER BY x.id DESC LIMIT 1) q
