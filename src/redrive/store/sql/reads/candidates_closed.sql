-- Messages that have ended, newest first; `ended` = how, NULL for any end.
-- Bounded: looks at no more than `window` messages before the position.
-- Relies on: message's primary key, scanned backwards; attempt_message, one probe per message.
SELECT m.id
  FROM (SELECT x.id, x.destination, x.tenant, x.kind FROM redrive.message x WHERE x.id < %(before)s ORDER BY x.id DESC LIMIT %(window)s) m
 CROSS JOIN LATERAL (SELECT a.closed FROM redrive.attempt a WHERE a.message_id = m.id AND a.closed IS NOT NULL LIMIT 1) e
 WHERE (%(destination)s::text IS NULL OR m.destination = %(destination)s) AND (%(tenant)s::text IS NULL OR m.tenant = %(tenant)s)
   AND (%(kind)s::text IS NULL OR m.kind = %(kind)s)
   AND (%(ended)s::text IS NULL OR e.closed = %(ended)s)
 ORDER BY m.id DESC LIMIT %(limit)s
