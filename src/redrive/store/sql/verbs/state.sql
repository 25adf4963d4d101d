-- state_of: where a message is: pending, leased, parked, or how it was closed. One statement, so one snapshot: a message
-- that moves meanwhile is seen before or after, never nowhere. NULL where no such message exists, or exists any more.
CREATE OR REPLACE FUNCTION redrive.state_of(p_id uuid) RETURNS text LANGUAGE sql STABLE
AS $body$
    SELECT coalesce(
        (SELECT 'pending' FROM redrive.pending p WHERE p.id = p_id),
        (SELECT 'leased' FROM redrive.lease l WHERE l.id = p_id),
        (SELECT 'parked' FROM redrive.parked k WHERE k.id = p_id),
        (SELECT a.closed FROM redrive.attempt a WHERE a.message_id = p_id AND a.closed IS NOT NULL LIMIT 1))
$body$;
