-- state_of: where a message is: pending, leased, parked, or how it was closed. One statement, so one snapshot: a message
-- that moves meanwhile is seen before or after, never nowhere. NULL where no such message exists, or exists any more.
-- PL/pgSQL, because a SQL function with subqueries is parsed and planned anew in every transaction (0.3 ms), and never by
-- a sequential scan, because a plan that was made while the tables were tiny would be kept while they grow.
CREATE OR REPLACE FUNCTION redrive.state_of(p_id uuid) RETURNS text
LANGUAGE plpgsql STABLE SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
BEGIN
    RETURN coalesce(
        (SELECT 'pending' FROM redrive.pending p WHERE p.id = p_id),
        (SELECT 'leased' FROM redrive.lease l WHERE l.id = p_id),
        (SELECT 'parked' FROM redrive.parked k WHERE k.id = p_id),
        (SELECT a.closed FROM redrive.attempt a WHERE a.message_id = p_id AND a.closed IS NOT NULL LIMIT 1));
END $body$;
