-- Every attempt of one delivery, oldest first (R-11); of all deliveries of a version where no recipient is given.
-- An act of a person has no claim, so what counts is when it ended.
SELECT a.recipient, a.message_id, a.attempt, a.verb, a.answer, a.code, a.reference, a.in_doubt, a.actor, a.claimed_at, a.completed_at
  FROM redrive_reviews.delivery_attempts a
 WHERE a.tenant = %(tenant)s AND a.changelist_id = %(changelist_id)s
   AND (%(recipient)s::text IS NULL OR a.recipient = %(recipient)s::text) AND a.review_version = %(review_version)s
 ORDER BY a.recipient, a.message_id, a.completed_at NULLS LAST, a.attempt
