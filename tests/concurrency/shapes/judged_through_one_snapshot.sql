-- lane_heads as the prototype had it: whether a lane is free is judged in the statement that locks it, through a snapshot that
-- may be older than the release of the lane, and the token of a lane that looks busy is dropped.
CREATE OR REPLACE FUNCTION redrive.lane_heads(
    p_destinations text[], p_levels smallint[], p_rooms integer[], p_since timestamptz[], p_now timestamptz
) RETURNS TABLE (place tid, lane bigint, room bigint, ended boolean)
LANGUAGE plpgsql SET search_path = redrive, pg_temp
AS $body$
#variable_conflict use_column
DECLARE
    v_lanes bigint[];
    v_free  bigint[];
BEGIN
    WITH popped AS (
        DELETE FROM lane_wake w WHERE w.ctid = ANY (ARRAY(
            SELECT t.place
              FROM unnest(p_destinations, p_levels, p_rooms) AS r(destination, level, room)
             CROSS JOIN LATERAL (
                SELECT k.ctid AS place FROM lane_wake k
                 WHERE k.destination = r.destination AND k.level = r.level AND k.due_at <= p_now
                 ORDER BY k.due_at, k.lane LIMIT r.room FOR UPDATE SKIP LOCKED) t))
        RETURNING w.lane
    )
    SELECT array_agg(DISTINCT p.lane) INTO v_lanes FROM popped p;
    v_free := ARRAY(SELECT x.id FROM lane x
                     WHERE x.id = ANY (v_lanes) AND NOT EXISTS (SELECT 1 FROM lease l WHERE l.lane = x.id)
                     ORDER BY x.id FOR UPDATE);
    RETURN QUERY
    SELECT h.place, h.lane, r.n, false
      FROM redrive.free_heads(v_free) h
      JOIN unnest(p_destinations, p_levels) WITH ORDINALITY AS r(destination, level, n)
        ON r.destination = h.destination AND r.level = h.level;
END
$body$;
