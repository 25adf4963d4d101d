-- Stages and notifications of jobs for the console, the newest message first; `search` is a changelist. A recipient is shown by the
-- domain of the address alone. Looks at no more than 10,000 messages. Relies on: the primary keys, scanned backwards.
SELECT m.message_id, m.changelist_id, m.review_version,
       coalesce(m.part, (SELECT 'notify …@' || split_part(s.recipient, '@', 2) FROM redrive_reviews.delivery_messages s
                          WHERE s.message_id = m.message_id)) AS part,
       redrive_reviews.state_of_message(m.message_id) AS state,
       (SELECT count(*) FROM redrive.attempt a WHERE a.message_id = m.message_id AND a.verb IN ('settle', 'complete', 'reap')) AS attempts,
       (SELECT k.error_class FROM redrive.parked k WHERE k.id = m.message_id) AS error_class,
       coalesce(m.reviewed_at, (SELECT s.notified_at FROM redrive_reviews.delivery_messages s
                                 WHERE s.message_id = m.message_id)) AS notified_at
  FROM (SELECT w.* FROM (
            (SELECT j.message_id, j.changelist_id, j.review_version, 'fetch, llm' AS part, j.reviewed_at
               FROM redrive_reviews.job j WHERE %(before)s::uuid IS NULL OR j.message_id < %(before)s::uuid
              ORDER BY j.message_id DESC LIMIT 10000)
            UNION ALL
            (SELECT t.message_id, t.changelist_id, t.review_version, NULL, NULL
               FROM redrive_reviews.delivery_message t WHERE %(before)s::uuid IS NULL OR t.message_id < %(before)s::uuid
              ORDER BY t.message_id DESC LIMIT 10000)) w
         WHERE %(search)s::text IS NULL OR w.changelist_id = %(search)s
         ORDER BY w.message_id DESC LIMIT %(limit)s) m
 ORDER BY m.message_id DESC
