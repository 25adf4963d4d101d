-- The recipients of a job, and where the notification of each is. attempts: by the triple, of all its messages.
SELECT d.recipient, d.provider, d.required, redrive_reviews.state_of_delivery(d) AS state, d.message_id, d.notification_id,
       d.notified_at, d.verified_at, coalesce(k.error_class, d.error_class) AS error_class, p.due_at, d.decided_by, d.on_replay,
       (SELECT count(*) FROM redrive_reviews.delivery_attempts a
         WHERE (a.tenant, a.changelist_id, a.recipient, a.review_version)
               = (d.tenant, d.changelist_id, d.recipient, d.review_version)
           AND a.verb IN ('settle', 'complete', 'reap')) AS attempts
  FROM redrive_reviews.delivery d
  LEFT JOIN redrive.parked k ON k.id = d.message_id
  LEFT JOIN redrive.pending p ON p.id = d.message_id
 WHERE d.tenant = %(tenant)s AND d.changelist_id = %(changelist_id)s AND d.review_version = %(review_version)s
 ORDER BY d.recipient
