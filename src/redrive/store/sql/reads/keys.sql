-- Ordering keys that have something open, oldest key first: of those that open_lanes walks, those whose head is in one of
-- `states`. waiting: how many are behind the head, counted to `most`.
-- Relies on: open_lanes and lane_head being inlined (views.sql); stream's primary key; pending_lane.
WITH listed AS (
    SELECT w.lane, s.tenant, s.order_by, h.*
      FROM redrive.open_lanes(%(after)s, %(halted)s, %(window)s) w
     CROSS JOIN LATERAL (SELECT x.tenant, x.order_by FROM redrive.stream x WHERE x.id = w.lane LIMIT 1) s
     CROSS JOIN LATERAL redrive.lane_head(w.lane, %(now)s) h
     WHERE h.state = ANY (%(states)s)
       AND (%(tenant)s::text IS NULL OR s.tenant = %(tenant)s)
       AND (%(destination)s::text IS NULL OR h.destination = %(destination)s)
     LIMIT %(limit)s
)
SELECT k.lane, k.tenant, k.order_by, k.sequence, k.state, k.destination, k.since, k.due_at, k.id AS head,
       (SELECT count(*) FROM (SELECT FROM redrive.pending p
                               WHERE p.lane = k.lane AND p.sequence > k.sequence LIMIT %(most)s) b) AS waiting
  FROM listed k
 ORDER BY k.lane
