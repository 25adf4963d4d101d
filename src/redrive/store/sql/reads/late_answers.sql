-- Outcomes of a message that were refused because their claim was lost, oldest first.
-- Relies on: late_answer_message.
SELECT l.at, l.attempt, l.worker, l.settlement, l.answer, l.code, l.reference
  FROM redrive.late_answer l
 WHERE l.message_id = %(id)s
 ORDER BY l.id
 LIMIT %(limit)s
