-- What operators did, newest first; `subject` = a message id or a destination, NULL for all.
-- Relies on: operator_action's primary key, or operator_action_subject.
SELECT o.id, o.at, o.actor, o.act, o.subject, o.reason, o.before, o.after
  FROM redrive.operator_action o
 WHERE o.id < %(before)s AND (%(subject)s::text IS NULL OR o.subject = %(subject)s)
 ORDER BY o.id DESC
 LIMIT %(limit)s
