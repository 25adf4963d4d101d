-- Work that is bounded however much waits: what a rate let out within the last second (verbs/limits.sql), and the lanes that
-- mend_lanes looks at in one call (verbs/lanes.sql).

-- When a rate let messages out within the last second, and how many then. Written by the claims, as the rest of the row is.
ALTER TABLE redrive.allowance ADD COLUMN IF NOT EXISTS charged_at timestamptz[] NOT NULL DEFAULT '{}';
ALTER TABLE redrive.allowance ADD COLUMN IF NOT EXISTS charged integer[] NOT NULL DEFAULT '{}';

-- Up to where a duty has got that goes through a table in slices; 0 = it begins anew.
ALTER TABLE redrive.duty ADD COLUMN IF NOT EXISTS position bigint NOT NULL DEFAULT 0;

-- Whether a lane has a token is one probe.
CREATE INDEX IF NOT EXISTS lane_wake_lane ON redrive.lane_wake (lane);
