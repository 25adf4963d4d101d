-- due_places: of the places (a destination and a level) that a claim asks for, those that have a message or a token due. A relay with
-- 1,000 destinations asks for 3,000 places, and mostly none of them has anything: one probe for each into two indexes would take most
-- of the claim's time. Here one index scan goes through all names of a level, and jumps from each name that has something due to the
-- next. Places that begin at a mark (low_water.sql) are kept unseen: a scan over many names cannot begin at a mark of each.
-- After c_enough names of one level the rest is kept unseen too: then there is work enough, and the claim probes for itself.
-- Called by claim for many places; everything here is called by verbs, nothing from outside.
-- Locks: nothing. Relies on: pending_due, lane_wake_due, read in the order of names: therefore no sort and no bitmap.
CREATE OR REPLACE FUNCTION redrive.due_places(
    p_destinations text[], p_levels smallint[], p_rooms integer[], p_since timestamptz[], p_now timestamptz,
    OUT destinations text[], OUT levels smallint[], OUT rooms integer[], OUT since timestamptz[]
) LANGUAGE plpgsql STABLE SET search_path = redrive, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
DECLARE c_enough CONSTANT integer := 100;
        v_level  smallint;
        v_names  text[];
        v_found  text[] := '{}';  -- the level, one digit, and the name
BEGIN
    FOR v_level, v_names IN
        SELECT r.level, array_agg(r.destination)
          FROM unnest(p_destinations, p_levels, p_rooms, p_since) AS r(destination, level, room, since)
         WHERE r.room > 0 AND r.since IS NULL
         GROUP BY r.level
    LOOP
        v_found := v_found || ARRAY(SELECT v_level || u.name FROM unnest(redrive.due_unordered(v_names, v_level, c_enough, p_now)) AS u(name))
                           || ARRAY(SELECT v_level || u.name FROM unnest(redrive.due_lanes(v_names, v_level, c_enough, p_now)) AS u(name));
    END LOOP;
    SELECT array_agg(r.destination), array_agg(r.level), array_agg(r.room), array_agg(r.since)
      INTO destinations, levels, rooms, since
      FROM unnest(p_destinations, p_levels, p_rooms, p_since) AS r(destination, level, room, since)
     WHERE r.room > 0 AND (r.since IS NOT NULL OR (r.level || r.destination) IN (SELECT unnest(v_found)));  -- hashed; ANY is not
END $body$;

-- due_unordered: those of these destinations that have an unordered message of one level due, and after p_enough of them all that
-- come later by name.
CREATE OR REPLACE FUNCTION redrive.due_unordered(p_names text[], p_level smallint, p_enough integer, p_now timestamptz)
RETURNS text[] LANGUAGE plpgsql STABLE AS $body$
DECLARE c_rows  CONSTANT integer := 32;  -- of one name they are walked over, of many names they save a look for each
        v_rows  text[];
        v_found text[] := '{}';
BEGIN
    LOOP
        v_rows := ARRAY(SELECT p.destination FROM pending p
                         WHERE p.destination = ANY (p_names) AND p.level = p_level AND p.lane IS NULL AND NOT p.suspect
                           AND p.due_at <= p_now
                         ORDER BY p.destination LIMIT c_rows);
        v_found := v_found || ARRAY(SELECT DISTINCT u.name FROM unnest(v_rows) AS u(name));
        EXIT WHEN cardinality(v_rows) < c_rows;
        p_names := ARRAY(SELECT u.name FROM unnest(p_names) AS u(name) WHERE u.name > v_rows[c_rows]);
        IF cardinality(v_found) >= p_enough THEN RETURN v_found || p_names; END IF;
    END LOOP;
    RETURN v_found;
END $body$;

-- due_lanes: the same for tokens of lanes.
CREATE OR REPLACE FUNCTION redrive.due_lanes(p_names text[], p_level smallint, p_enough integer, p_now timestamptz) RETURNS text[]
LANGUAGE plpgsql STABLE AS $body$
DECLARE c_rows  CONSTANT integer := 32;
        v_rows  text[];
        v_found text[] := '{}';
BEGIN
    LOOP
        v_rows := ARRAY(SELECT w.destination FROM lane_wake w
                         WHERE w.destination = ANY (p_names) AND w.level = p_level AND w.due_at <= p_now
                         ORDER BY w.destination LIMIT c_rows);
        v_found := v_found || ARRAY(SELECT DISTINCT u.name FROM unnest(v_rows) AS u(name));
        EXIT WHEN cardinality(v_rows) < c_rows;
        p_names := ARRAY(SELECT u.name FROM unnest(p_names) AS u(name) WHERE u.name > v_rows[c_rows]);
        IF cardinality(v_found) >= p_enough THEN RETURN v_found || p_names; END IF;
    END LOOP;
    RETURN v_found;
END $body$;

-- with_suspects: those of these destinations that have a suspect, due or not. From name to name in pending_suspect: one probe where there
-- is none, however many destinations are asked for.
CREATE OR REPLACE FUNCTION redrive.with_suspects(p_destinations text[]) RETURNS text[]
LANGUAGE plpgsql STABLE AS $body$
BEGIN
    RETURN ARRAY(
        WITH RECURSIVE names AS (
            (SELECT p.destination AS name FROM pending p WHERE p.suspect ORDER BY p.destination LIMIT 1)
            UNION ALL
            SELECT n.name
              FROM names f
             CROSS JOIN LATERAL (SELECT p.destination AS name FROM pending p
                                  WHERE p.suspect AND p.destination > f.name ORDER BY p.destination LIMIT 1) n
        )
        SELECT n.name FROM names n WHERE n.name = ANY (p_destinations));
END $body$;
