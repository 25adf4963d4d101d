-- leases: which claims a worker holds. A relay that lost the reply of a claim, or of a settle that handed a lane over, asks for them and
-- hands back those that it does not know: it never began them. Otherwise they would run out and come back in doubt.
-- Locks: nothing. Reads the whole table of leases, which is as small as what is in flight.
CREATE OR REPLACE FUNCTION redrive.leases_1(p_worker uuid) RETURNS TABLE (id uuid, attempt integer)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp SET jit = off AS $body$
#variable_conflict use_column
BEGIN
    RETURN QUERY SELECT l.id, l.attempt FROM lease l WHERE l.worker = p_worker ORDER BY l.id;
END $body$;
