-- What says that these messages were delivered although their claims say otherwise, the earliest first of each: evidence, by which they
-- are held, and late answers that are none (counts = false), which change nothing.
-- Relies on: evidence's primary key, late_answer_message.
SELECT s.id AS message_id, p.kind, p.subject, p.reference, p.at, p.counts
  FROM unnest(%(ids)s::uuid[]) AS s (id)
 CROSS JOIN LATERAL (
    SELECT e.kind, e.subject, e.reference, e.at, true AS counts FROM redrive.evidence e WHERE e.message_id = s.id
    UNION ALL
    SELECT 'late_answer', 'attempt ' || l.attempt, l.reference, l.at, false FROM redrive.late_answer l
     WHERE l.message_id = s.id AND l.answer = 'delivered'
     ORDER BY counts DESC, at, kind, subject LIMIT %(limit)s) p
