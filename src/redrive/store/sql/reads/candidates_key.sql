-- The one message of an idempotency key, also long after it was closed.
-- Relies on: idempotency's primary key.
SELECT i.message_id AS id
  FROM redrive.idempotency i
 WHERE i.tenant = %(tenant)s AND i.key_hash = sha256(convert_to(%(key)s, 'UTF8'))
