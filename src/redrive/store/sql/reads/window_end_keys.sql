-- Where a walk over the ordering keys has to go on: the last lane that it looked at; no row where it saw all.
-- Relies on: open_lanes (views.sql).
SELECT w.lane FROM redrive.open_lanes(%(after)s, %(halted)s, %(window)s) w WHERE w.steps = %(window)s
