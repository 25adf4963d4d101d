-- One ordering key and its head; no row where nothing of it is open. waiting is counted to `most`.
-- Relies on: stream's unique index, lane_head being inlined (views.sql), pending_lane.
SELECT s.id AS lane, s.tenant, s.order_by, h.sequence, h.state, h.destination, h.since, h.due_at, h.id AS head,
       (SELECT count(*) FROM (SELECT FROM redrive.pending p
                               WHERE p.lane = s.id AND p.sequence > h.sequence LIMIT %(most)s) b) AS waiting
  FROM redrive.stream s
 CROSS JOIN LATERAL redrive.lane_head(s.id, %(now)s) h
 WHERE s.tenant = %(tenant)s AND s.order_by = %(order_by)s
