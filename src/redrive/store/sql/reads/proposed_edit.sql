-- The payload that one person has proposed for a message, for a second person to see and to approve.
-- Relies on: proposal's primary key.
SELECT o.asked_by, o.asked_at, o.reason, o.content_type, o.bytes AS body, o.options
  FROM redrive.proposal o
 WHERE o.act = 'edit' AND o.subject = %(subject)s AND o.asked_at > clock_timestamp() - interval '1 day'
