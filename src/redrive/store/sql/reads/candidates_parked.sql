-- Messages that wait for a person, newest message first; `reason` = dead, held, unrecorded, NULL for any.
-- Bounded by `window`. The worklist of one reason, by the time of parking, is parked.sql.
-- Relies on: parked's primary key, scanned backwards; message's primary key where a kind is asked for.
SELECT p.id
  FROM (SELECT x.id, x.destination, x.tenant, x.reason FROM redrive.parked x WHERE x.id < %(before)s ORDER BY x.id DESC LIMIT %(window)s) p
 WHERE (%(destination)s::text IS NULL OR p.destination = %(destination)s) AND (%(tenant)s::text IS NULL OR p.tenant = %(tenant)s)
   AND (%(reason)s::text IS NULL OR p.reason = %(reason)s)
   AND (%(kind)s::text IS NULL OR EXISTS (SELECT 1 FROM redrive.message m WHERE m.id = p.id AND m.kind = %(kind)s))
 ORDER BY p.id DESC LIMIT %(limit)s
