-- How long the payload of a version is, in bytes. Needs the privilege to read payloads.
-- Relies on: the primary keys of message and body.
SELECT octet_length(coalesce(b.bytes, m.body)) AS body_bytes
  FROM redrive.message m
  LEFT JOIN redrive.body b ON b.message_id = m.id AND b.version = %(version)s
 WHERE m.id = %(id)s
