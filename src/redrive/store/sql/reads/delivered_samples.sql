-- Payloads of some messages of a kind that the destination took, among the newest `window`. Needs the privilege to read payloads.
-- Relies on: message's primary key, scanned backwards; attempt_message, one probe per message of the kind.
SELECT m.id, m.body
  FROM (SELECT x.id, x.destination, x.kind, x.content_type, x.body
          FROM redrive.message x
         ORDER BY x.id DESC
         LIMIT %(window)s) m
 CROSS JOIN LATERAL (SELECT 1 FROM redrive.attempt a
                      WHERE a.message_id = m.id AND a.closed = 'delivered' AND a.version = 1
                      LIMIT 1) e
 WHERE m.destination = %(destination)s AND m.kind = %(kind)s AND m.content_type = 'application/json'
   AND octet_length(m.body) <= %(bytes_max)s
 LIMIT %(limit)s
