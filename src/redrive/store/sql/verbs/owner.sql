-- Destinations whose name begins with a prefix in `destination_owner` belong to a system (P-13): messages come there through that
-- system's own functions, and by no other way: not by enqueue, not by copy, not by an advance out of another destination.

-- owner_of: the system that a destination belongs to; NULL where it belongs to none. Relies on: the table is tiny.
CREATE OR REPLACE FUNCTION redrive.owner_of(p_destination text) RETURNS text
LANGUAGE plpgsql STABLE AS $body$
BEGIN
    RETURN (SELECT o.system FROM redrive.destination_owner o WHERE starts_with(p_destination, o.prefix)
             ORDER BY char_length(o.prefix) DESC LIMIT 1);
END $body$;

-- refuse_owned: raises for a destination that belongs to a system. redrive.produce.protocol knows the sentence by its beginning.
CREATE OR REPLACE FUNCTION redrive.refuse_owned(p_destination text) RETURNS void
LANGUAGE plpgsql STABLE AS $body$
BEGIN
    RAISE EXCEPTION 'destination % belongs to the system %: only the functions of that system enqueue there.', p_destination,
                    redrive.owner_of(p_destination)
        USING ERRCODE = '42501', HINT = format('Call a function of the schema redrive_%s.', redrive.owner_of(p_destination));
END $body$;

-- park_owned: the settlements, with those parked that would advance into a destination of a system from outside of it: the way
-- there is that system's own function. The others of the call stay as they are. In doubt it is held, else dead.
CREATE OR REPLACE FUNCTION redrive.park_owned(
    p_ids uuid[], p_settlements text[], p_park_reasons text[], p_codes text[], p_texts text[], p_halts boolean[],
    p_destinations text[], p_doubts text[], OUT settlements text[], OUT park_reasons text[], OUT codes text[], OUT texts text[],
    OUT halts boolean[], OUT destinations text[]
) LANGUAGE plpgsql AS $body$
BEGIN
    SELECT array_agg(CASE WHEN g.owned THEN 'park' ELSE g.settlement END ORDER BY g.n),
           array_agg(CASE WHEN NOT g.owned THEN g.park_reason WHEN g.doubt = 'none' THEN 'dead' ELSE 'held' END ORDER BY g.n),
           array_agg(CASE WHEN g.owned THEN 'DESTINATION_OWNED' ELSE g.code END ORDER BY g.n),
           array_agg(CASE WHEN g.owned THEN format('The destination %s belongs to a system; only its own functions enqueue there.',
                                                   g.destination)
                          ELSE g.text END ORDER BY g.n),
           array_agg(g.owned OR g.halt ORDER BY g.n),
           array_agg(CASE WHEN NOT g.owned THEN g.destination END ORDER BY g.n)
      INTO settlements, park_reasons, codes, texts, halts, destinations
      FROM (SELECT u.*, u.settlement = 'advance' AND u.destination IS NOT NULL
                        AND redrive.owner_of(u.destination) IS DISTINCT FROM
                            coalesce((SELECT redrive.owner_of(l.destination) FROM redrive.lease l WHERE l.id = u.id), '')
                        AND redrive.owner_of(u.destination) IS NOT NULL AS owned
              FROM unnest(p_ids, p_settlements, p_park_reasons, p_codes, p_texts, p_halts, p_destinations, p_doubts)
                   WITH ORDINALITY AS u(id, settlement, park_reason, code, text, halt, destination, doubt, n)) g;
END $body$;

-- systems_in_use: the systems that own a destination which relays have declared. For `redrive doctor`: the login of such a relay needs
-- the role of that system too. Relies on: both tables are small.
CREATE OR REPLACE FUNCTION redrive.systems_in_use_1() RETURNS text[]
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = redrive, pg_temp AS $body$
BEGIN
    RETURN ARRAY(SELECT DISTINCT o.system FROM destination_owner o JOIN destination d ON starts_with(d.name, o.prefix) ORDER BY 1);
END $body$;
