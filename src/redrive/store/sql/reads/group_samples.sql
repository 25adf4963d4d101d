-- Payloads of some dead letters of a failure group, as they are now; large ones are left out. Needs the privilege to read payloads.
-- Relies on: parked_group; the primary keys of message and body, one probe per row.
SELECT k.id, coalesce(b.bytes, m.body) AS body
  FROM (SELECT x.id, x.version FROM redrive.parked x
         WHERE x.failure_group = %(fingerprint)s AND x.reason = 'dead'
         LIMIT %(limit)s) k
 CROSS JOIN LATERAL (SELECT y.body, y.content_type FROM redrive.message y WHERE y.id = k.id OFFSET 0) m
  LEFT JOIN LATERAL (SELECT y.bytes FROM redrive.body y WHERE y.message_id = k.id AND y.version = k.version LIMIT 1) b ON true
 WHERE m.content_type = 'application/json' AND octet_length(coalesce(b.bytes, m.body)) <= %(bytes_max)s
