-- The newest messages, whatever became of them: ids, newest first.
-- Bounded: looks at no more than `window` messages before the position, so that a filter that matches nothing ends too.
-- Relies on: message's primary key, scanned backwards.
SELECT m.id
  FROM (SELECT x.id, x.destination, x.tenant, x.kind FROM redrive.message x WHERE x.id < %(before)s ORDER BY x.id DESC LIMIT %(window)s) m
 WHERE (%(destination)s::text IS NULL OR m.destination = %(destination)s) AND (%(tenant)s::text IS NULL OR m.tenant = %(tenant)s)
   AND (%(kind)s::text IS NULL OR m.kind = %(kind)s)
 ORDER BY m.id DESC LIMIT %(limit)s
