-- Every attempt of one delivery, oldest first (R-11).
SELECT a.message_id, a.attempt, a.verb, a.answer, a.code, a.reference, a.in_doubt, a.actor, a.claimed_at, a.completed_at
  FROM redrive_reviews.delivery_attempts a
 WHERE a.tenant = %(tenant)s AND a.changelist_id = %(changelist_id)s AND a.recipient = %(recipient)s
   AND a.review_version = %(review_version)s
 ORDER BY a.claimed_at NULLS LAST, a.completed_at NULLS LAST
