-- The recipients of a job, and where the notification of each is. Addresses are masked for those who may not see them.
SELECT d.recipient, d.provider, d.required, d.state, d.message_id, d.notification_id,
       d.notified_at, d.verified_at, coalesce(k.error_class, d.error_class) AS error_class, p.due_at, d.decided_by, d.on_replay,
       d.attempts
  FROM redrive_reviews.deliveries d
  LEFT JOIN redrive.parked k ON k.id = d.message_id
  LEFT JOIN redrive.pending p ON p.id = d.message_id
 WHERE d.tenant = %(tenant)s AND d.changelist_id = %(changelist_id)s AND d.review_version = %(review_version)s
 ORDER BY d.recipient, d.message_id
