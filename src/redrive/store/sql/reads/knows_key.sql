-- Whether an ordering key was ever used.
-- Relies on: stream's unique index.
SELECT EXISTS (SELECT 1 FROM redrive.stream s WHERE s.tenant = %(tenant)s AND s.order_by = %(order_by)s) AS known
