-- The payload of the present version, with its headers. Needs a privilege of its own (see may_read.sql).
-- Relies on: the primary keys of message and body.
SELECT m.headers, coalesce(b.content_type, m.content_type) AS content_type, coalesce(b.bytes, m.body) AS body
  FROM redrive.message m
  LEFT JOIN redrive.body b ON b.message_id = m.id AND b.version = %(version)s
 WHERE m.id = %(id)s
