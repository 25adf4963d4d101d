-- What one person has asked to be done to a subject within the last day, and a second one has to ask for too.
-- Relies on: nothing; the table holds what was asked for within a day.
SELECT o.act, o.asked_by, o.asked_at, o.reason, o.options
  FROM redrive.proposal o
 WHERE o.subject = %(subject)s AND o.asked_at > clock_timestamp() - interval '1 day'
 ORDER BY o.asked_at
