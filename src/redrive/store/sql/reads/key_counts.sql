-- How many ordering keys have their head in which state, of those that open_lanes walks.
-- Relies on: open_lanes and lane_head being inlined (views.sql).
SELECT h.state, count(*) AS keys
  FROM redrive.open_lanes(%(after)s, %(halted)s, %(window)s) w
 CROSS JOIN LATERAL redrive.lane_head(w.lane, %(now)s) h
 GROUP BY h.state
