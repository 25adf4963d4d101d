-- lane_heads that locks first and judges then, as ours, but puts the token of a lane that somebody holds back with the time
-- that it had: the next look finds the same tokens first again.
CREATE OR REPLACE FUNCTION redrive.lane_heads(
    p_destinations text[], p_levels smallint[], p_rooms integer[], p_since timestamptz[], p_now timestamptz
) RETURNS TABLE (place tid, lane bigint, room bigint, ended boolean)
LANGUAGE plpgsql SET search_path = redrive, pg_temp
AS $body$
#variable_conflict use_column
DECLARE
    v_tokens lane_wake[];
    v_locked bigint[];
BEGIN
    WITH popped AS (
        DELETE FROM lane_wake w WHERE w.ctid = ANY (ARRAY(
            SELECT t.place
              FROM unnest(p_destinations, p_levels, p_rooms) AS r(destination, level, room)
             CROSS JOIN LATERAL (
                SELECT k.ctid AS place FROM lane_wake k
                 WHERE k.destination = r.destination AND k.level = r.level AND k.due_at <= p_now
                 ORDER BY k.due_at, k.lane LIMIT r.room FOR UPDATE SKIP LOCKED) t))
        RETURNING w.*
    )
    SELECT array_agg(p::lane_wake) INTO v_tokens FROM popped p;
    v_locked := ARRAY(SELECT x.id FROM lane x WHERE x.id = ANY (ARRAY(SELECT t.lane FROM unnest(v_tokens) t))
                       ORDER BY x.id FOR UPDATE SKIP LOCKED);
    INSERT INTO lane_wake SELECT t.* FROM unnest(v_tokens) t WHERE t.lane <> ALL (v_locked);
    RETURN QUERY
    SELECT h.place, h.lane, r.n, false
      FROM redrive.free_heads(v_locked) h
      JOIN unnest(p_destinations, p_levels) WITH ORDINALITY AS r(destination, level, n)
        ON r.destination = h.destination AND r.level = h.level;
END
$body$;
