-- Whether a destination is registered, paused, or has anything open.
-- Relies on: destination's primary key, pending_due, pending_suspect; parked_listed. Leases are few.
SELECT EXISTS (SELECT 1 FROM redrive.destination d WHERE d.name = %(name)s)
    OR EXISTS (SELECT 1 FROM redrive.pending p WHERE p.destination = %(name)s AND p.lane IS NULL AND NOT p.suspect)
    OR EXISTS (SELECT 1 FROM redrive.pending p WHERE p.destination = %(name)s AND p.suspect)
    OR EXISTS (SELECT 1 FROM redrive.lease l WHERE l.destination = %(name)s)
    OR EXISTS (SELECT 1 FROM redrive.parked k WHERE k.reason IN ('dead', 'held', 'unrecorded') AND k.destination = %(name)s)
    AS known
